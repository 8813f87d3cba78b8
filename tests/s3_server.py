"""An S3 server on this machine (moto's), for tests of runs and data at s3://."""

import contextlib
import json
import os
import uuid

from timeouts import HANG_SECONDS

SECRETS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
}
PATIENT = {"config_kwargs": {"connect_timeout": HANG_SECONDS, "read_timeout": HANG_SECONDS}}
"""Settings of s3fs, which else gives up after 5 and 15 seconds."""


@contextlib.contextmanager
def serve():
    """The environment of processes that are to find it; this one's is set too, until the end."""
    import logging

    import fsspec.config
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = SECRETS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    settings["FSSPEC_S3"] = json.dumps(PATIENT)  # read by fsspec when it is imported
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    known = fsspec.config.conf.get("s3", {})
    fsspec.config.conf["s3"] = known | PATIENT
    try:
        yield settings
    finally:
        fsspec.config.conf["s3"] = known
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        server.stop()


def make_bucket():
    """A new, empty one: its address."""
    import s3fs

    name = f"bucket-{uuid.uuid4().hex}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    return f"s3://{name}"
