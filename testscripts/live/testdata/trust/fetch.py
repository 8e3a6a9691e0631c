# fetch.py CLIENT AS HOST...: as client says, by a library of Python.
import os, sys

client, as_, hosts = sys.argv[1], sys.argv[2], sys.argv[3:]
headers = {"Authorization": "Bearer " + os.environ["MINE"]}


def issuer(certificate):
    return dict(pair[0] for pair in certificate["issuer"])["commonName"]


def urllib(host):
    import urllib.request
    with urllib.request.urlopen(urllib.request.Request(f"https://{host}/seen/{as_}", headers=headers), timeout=30) as r:
        found = issuer(r.fp.raw._sock.getpeercert())
        r.read()
        return found


def requests(host):
    import requests
    with requests.get(f"https://{host}/seen/{as_}", headers=headers, timeout=30, stream=True) as r:
        r.raise_for_status()
        return issuer(r.raw.connection.sock.getpeercert())


# The request of a service of AWS, unsigned; what the world answers is none of its.
def botocore(host):
    import botocore.session, botocore.config, botocore.parsers
    config = botocore.config.Config(signature_version=botocore.UNSIGNED, retries={"total_max_attempts": 1}, read_timeout=30)
    c = botocore.session.get_session().create_client("sts", region_name="none", endpoint_url=f"https://{host}/seen/{as_}", config=config)
    c.meta.events.register("before-send", lambda request, **_: request.headers.update(headers))
    try:
        c.get_caller_identity()
    except botocore.parsers.ResponseParserError:
        return "-"


for host in hosts:
    try:
        print(host, "ok", globals()[client](host), flush=True)
    except Exception as e:
        print(host, "failed", type(e).__name__, e, flush=True)
