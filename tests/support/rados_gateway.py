"""Ceph's RADOS gateway for tests: a real S3 that owes nothing to the one that the other tests run against.

One monitor, one storage daemon that keeps its objects in memory, and the gateway, all on this machine and without
authentication among them. It needs Debian's packages radosgw, ceph-mon and ceph-osd, unpacked or installed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support import servers

_KEY, _SECRET = "testing", "testing-secret"
_PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "osdmaptool")
_OBJECTS = 4 << 30  # bytes that the storage daemon takes before it is full
_DOWN = 3.0  # seconds between the end of a gateway and its next start


class RadosGateway(servers.Server):
    """A running gateway; `endpoint` is its URL."""

    module = "tests.support.rados_gateway"

    def check_installed(self) -> None:
        for program in _PROGRAMS:
            _program(program)

    def make_bucket(self) -> str:
        """The URL of a new bucket."""
        import fsspec

        name = servers.new_name()
        options = {**self.storage_options(), "skip_instance_cache": True}
        fs = fsspec.filesystem("s3", **options)
        fs.call_s3("create_bucket", Bucket=name)
        fs.close_session(fs.loop, fs.s3)
        return f"s3://{name}"

    def restart(self) -> None:
        """Kill the gateway's process, in the middle of its requests, and start it again some seconds later. Returns at
        once. Objects stay: the storage daemon has them."""
        self._process.send_signal(signal.SIGUSR1)

    def storage_options(self) -> dict[str, Any]:
        """Options for `open_store`, which also fit fsspec."""
        return {
            "key": _KEY,
            "secret": _SECRET,
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": "us-east-1"},
        }

    def make_user(self, policy: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a new user, who has the rights of one identity policy of IAM."""
        import boto3
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        name = servers.new_name()
        query = f"uid={name}&display-name={name}&access-key={name}&secret-key={_SECRET}"
        request = AWSRequest("PUT", f"{self.endpoint}/admin/user?{query}")
        S3SigV4Auth(Credentials(_KEY, _SECRET), "s3", "us-east-1").add_auth(request)
        wanted = urllib.request.Request(request.prepare().url, method="PUT", headers=dict(request.headers.items()))
        with urllib.request.urlopen(wanted, timeout=10) as response:
            response.read()
        keys = {"aws_access_key_id": _KEY, "aws_secret_access_key": _SECRET, "region_name": "us-east-1"}
        iam = boto3.client("iam", endpoint_url=self.endpoint, **keys)
        iam.put_user_policy(UserName=name, PolicyName="role", PolicyDocument=json.dumps(policy))
        iam.close()
        return {**self.storage_options(), "key": name}


def _program(name: str) -> Path:
    return servers.installed(name, f"debian/usr/bin/{name}")


def _configuration(folder: Path, fsid: uuid.UUID, monitor: int, gateway: int) -> str:
    settings = {
        "fsid": fsid,
        "mon_host": f"v2:127.0.0.1:{monitor}",
        "auth_cluster_required": "none",
        "auth_service_required": "none",
        "auth_client_required": "none",
        "ms_mon_client_mode": "crc",  # the gateway asks for encryption, which needs authentication
        "public_addr": "127.0.0.1",
        "cluster_addr": "127.0.0.1",
        "ms_bind_msgr1": "false",
        "osd_pool_default_size": 1,
        "osd_pool_default_min_size": 1,
        "osd_pool_default_pg_num": 1,
        "osd_pool_default_pgp_num": 1,
        "osd_crush_chooseleaf_type": 0,
        "mon_allow_pool_size_one": "true",
        # Each step of the start waits for these.
        "paxos_propose_interval": 0.02,
        "paxos_min_wait": 0.01,
        "mon_client_hunt_interval": 0.2,
        "osd_objectstore": "memstore",
        "memstore_device_bytes": _OBJECTS,
        "run_dir": folder,
        "admin_socket": "",
        "log_file": folder / "$name.log",
        "mon_cluster_log_file": folder / "cluster.log",
        "mon_data": folder / "mon",
        "osd_data": folder / "osd",
        "rgw_data": folder,
        "rgw_frontends": f"beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1",
    }
    for libraries in (servers.servers_folder() / "debian/usr/lib").glob("*-linux-gnu*"):
        if (libraries / "rados-classes").exists():
            settings["plugin_dir"] = libraries / "ceph"
            settings["erasure_code_dir"] = libraries / "ceph/erasure-code"
            settings["osd_class_dir"] = libraries / "rados-classes"
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items()), ""])


def _start(stack: ExitStack) -> str:
    folder, fsid, environment = servers.new_folder(stack), uuid.uuid4(), servers.library_path()
    monitor, gateway = servers.free_ports(2)
    configuration = folder / "ceph.conf"
    configuration.write_text(_configuration(folder, fsid, monitor, gateway))
    common = ("-c", configuration)
    for name in ("mon", "osd"):
        (folder / name).mkdir()

    def carry_out(program: str, *arguments: str | Path) -> None:
        command = [_program(program), *arguments, *common]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")

    def start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [_program(program), "-f", "--no-mon-config", *arguments, *common]
        return stack.enter_context(servers.running(command, folder / f"{program}.out", environment))

    # The maps that an administrator would make with commands to the monitor are there from the beginning.
    carry_out("osdmaptool", "--createsimple", "1", folder / "osdmap")
    carry_out("monmaptool", "--create", "--fsid", str(fsid), "--addv", "a", f"[v2:127.0.0.1:{monitor}]", folder / "map")
    carry_out("ceph-mon", "--mkfs", "-i", "a", "--osdmap", folder / "osdmap", "--monmap", folder / "map")
    start("ceph-mon", "-i", "a")
    carry_out("ceph-osd", "--mkfs", "--no-mon-config", "-i", "0")
    start("ceph-osd", "-i", "0")
    user = ["--uid", "testing", "--display-name", "testing", "--access-key", _KEY, "--secret-key", _SECRET]
    user += ["--caps", "users=*;user-policy=*"]
    carry_out("radosgw-admin", "--no-mon-config", "user", "create", *user)
    running = [start("radosgw", "-n", "client.admin")]

    def restart(*_: object) -> None:
        running[-1].kill()
        running[-1].wait()
        time.sleep(_DOWN)
        running.append(start("radosgw", "-n", "client.admin"))

    servers.wait_for_port(gateway, running[0], folder / "client.admin.log")
    signal.signal(signal.SIGUSR1, restart)
    return f"http://127.0.0.1:{gateway}"


if __name__ == "__main__":
    servers.run_server(_start)
