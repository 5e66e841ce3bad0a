"""How the scripts reach the server without a client library."""

import base64
import json
import os
import pathlib
import socket
import ssl
import struct
import tempfile
import urllib.parse

import yaml


class Server:
    """The server of the kubeconfig, as its admin."""

    def __init__(self):
        config = yaml.safe_load(pathlib.Path(os.environ["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url = cluster["server"]
        address = urllib.parse.urlsplit(self.url)
        self.address = (address.hostname, address.port)
        self.directory = tempfile.TemporaryDirectory()
        self.files = {}
        for name, data in (("ca", cluster["certificate-authority-data"]),
                           ("certificate", user["client-certificate-data"]), ("key", user["client-key-data"])):
            self.files[name] = str(pathlib.Path(self.directory.name, name))
            pathlib.Path(self.files[name]).write_bytes(base64.b64decode(data))

    def tls(self, *protocols):
        context = ssl.create_default_context(cafile=self.files["ca"])
        context.load_cert_chain(self.files["certificate"], self.files["key"])
        context.set_alpn_protocols(protocols)
        return context

    def connect(self, protocol="http/1.1", buffer=None):
        """A connection of bytes; with `buffer` the kernel keeps little of what is not read."""
        near = socket.socket()
        if buffer:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        near.connect(self.address)
        return self.tls(protocol).wrap_socket(near, server_hostname=self.address[0])

    def holds(self, connection):
        """Whether the server's end of a connection is still open, as its kernel has it."""
        near = f"{self.address[1]:04X}", f"{connection.getsockname()[1]:04X}"
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if (local.split(":")[1], remote.split(":")[1]) == near:
                return state == "01"
        return False


def head(method, path, *headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: server", *headers, "", ""]
    return "\r\n".join(lines).encode()


def answer(connection):
    """The code of the next answer of HTTP/1.1, and its body, which must be JSON."""
    reader = connection.makefile("rb")
    code = int(reader.readline().split()[1])
    length = 0
    while line := reader.readline().strip():
        name, value = line.decode().split(":", 1)
        if name.lower() == "content-length":
            length = int(value)
    return code, json.loads(reader.read(length))


class Http2:
    """So much of HTTP/2 that requests can be sent as no library would."""

    DATA, HEADERS, SETTINGS, GOAWAY, CONTINUATION = 0, 1, 4, 7, 9

    def __init__(self, server, buffer=None):
        self.connection = server.connect("h2", buffer)
        self.host = "server"
        self.connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.frame(self.SETTINGS, 0, 0, b"")

    def frame(self, kind, flags, stream, payload):
        self.connection.sendall(struct.pack(">I", len(payload))[1:] + bytes([kind, flags])
                                + struct.pack(">I", stream) + payload)

    def get(self, stream, path):
        fields = [(":method", "GET"), (":scheme", "https"), (":authority", self.host), (":path", path)]
        block = b"".join(b"\x00" + self.text(name) + self.text(value) for name, value in fields)
        first, rest = block[:16384], block[16384:]
        self.frame(self.HEADERS, 0x1 | (0 if rest else 0x4), stream, first)
        while rest:
            part, rest = rest[:16384], rest[16384:]
            self.frame(self.CONTINUATION, 0 if rest else 0x4, stream, part)

    @staticmethod
    def text(value):
        """A literal of HPACK, its length with a prefix of seven bits."""
        raw, length = value.encode(), len(value.encode())
        if length < 127:
            return bytes([length]) + raw
        out, length = [127], length - 127
        while length >= 128:
            out.append(length % 128 + 128)
            length //= 128
        return bytes([*out, length]) + raw

    def read(self):
        """The next frame: kind, stream, payload; none at the end."""
        def exactly(count):
            got = b""
            while len(got) < count:
                more = self.connection.recv(count - len(got))
                if not more:
                    raise EOFError
                got += more
            return got

        try:
            start = exactly(9)
            length = struct.unpack(">I", b"\0" + start[:3])[0]
            return start[3], struct.unpack(">I", start[5:])[0] & 0x7FFFFFFF, exactly(length)
        except (EOFError, ConnectionError, ssl.SSLError):
            return None
