package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

const signatureBytes = 32

// signingKey is the key of signed roots that the environment has. Without one, signatures are skipped.
func signingKey() []byte {
	text := strings.TrimSpace(os.Getenv("PRAVEGA_SIGNING_KEY"))
	if text == "" {
		return nil
	}
	key, err := hex.DecodeString(text)
	if err != nil || len(key) < 32 {
		damaged("PRAVEGA_SIGNING_KEY is no key")
	}
	return key
}

func keyId(key []byte) string {
	made := hmac.New(sha256.New, key)
	made.Write([]byte("pravega-spark key id"))
	return hex.EncodeToString(made.Sum(nil)[:8])
}

// signatureOf is the signature of the object with this content at a path below the root.
func signatureOf(key []byte, below string, content []byte) []byte {
	made := hmac.New(sha256.New, key)
	made.Write([]byte("pravega-spark signature 1\x00" + below + "\x00"))
	made.Write(content)
	return made.Sum(nil)
}

// readLog returns the content of an object of the log, without its signature if the root is signed.
func (c *container) readLog(path string) []byte {
	data := readFile(path)
	if !c.signed {
		return data
	}
	if len(data) < signatureBytes {
		damaged("%s: it has no signature", path)
	}
	data, signature := data[:len(data)-signatureBytes], data[len(data)-signatureBytes:]
	if c.key != nil {
		below, _ := filepath.Rel(c.log, path)
		if !hmac.Equal(signature, signatureOf(c.key, filepath.ToSlash(below), data)) {
			damaged("%s: its signature does not fit", path)
		}
	}
	return data
}

// checkSigned compares the description of a root with its signature: over the other fields but the checksum.
func checkSigned(path string, all map[string]any, key []byte) {
	if key == nil {
		return
	}
	if all["signed"] != keyId(key) {
		damaged("%s: it is not signed with this key", path)
	}
	text, _ := all["signature"].(string)
	delete(all, "signature")
	signature, _ := hex.DecodeString(text)
	if !hmac.Equal(signature, signatureOf(key, "_system/pravega.json", []byte(canonical(all)))) {
		damaged("%s: its signature does not fit", path)
	}
}
