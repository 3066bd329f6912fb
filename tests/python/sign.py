"""Signs each request that schemathesis sends, as NIP-98 asks: the body as it goes out."""

import base64
import hashlib
import json
import secrets
import time

import schemathesis
from coincurve import PrivateKey
from requests.auth import AuthBase

KEY = PrivateKey(bytes([7]) * 32)
PUBKEY = KEY.public_key_xonly.format().hex()


def event(kind, tags):
    """A signed event without content."""
    created_at = int(time.time())
    form = json.dumps([0, PUBKEY, created_at, kind, tags, ""], separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(form.encode()).digest()
    return {
        "id": digest.hex(),
        "pubkey": PUBKEY,
        "created_at": created_at,
        "kind": kind,
        "tags": tags,
        "content": "",
        "sig": KEY.sign_schnorr(digest).hex(),
    }


class Nip98(AuthBase):
    """Puts the header on a request that is ready to go."""

    def __call__(self, request):
        body = request.body or b""
        if isinstance(body, str):
            body = body.encode()
        tags = [["u", request.url], ["method", request.method], ["nonce", secrets.token_hex(16)]]
        if body:
            tags.append(["payload", hashlib.sha256(body).hexdigest()])
        token = base64.b64encode(json.dumps(event(27235, tags)).encode()).decode()
        request.headers["Authorization"] = f"Nostr {token}"
        return request


schemathesis.auth.set_from_requests(Nip98())


def without_fractions(value):
    """JSON has one kind of number, Python two: 7.0 is a 7 to the schema, and is sent as one."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [without_fractions(item) for item in value]
    if isinstance(value, dict):
        return {name: without_fractions(item) for name, item in value.items()}
    return value


@schemathesis.hook
def map_body(context, body):
    return without_fractions(body)
