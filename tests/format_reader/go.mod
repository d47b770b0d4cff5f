module format_reader

go 1.21
