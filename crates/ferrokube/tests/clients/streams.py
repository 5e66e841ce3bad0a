"""Every protocol of exec, attach, logs, port-forward and the proxies, spoken as clients speak it, with a Pod that runs.

What a client library chooses by itself is in client.py; here are the others. The argument is kubectl, which speaks
SPDY/3.1.
"""

import base64
import json
import os
import re
import subprocess
import sys
import unittest
import urllib.parse
import urllib.request

import websocket
from kubernetes import client, config, watch

from server import Server, head

IMAGE = "test.local/app:1"
KUBECTL = sys.argv.pop(1) if len(sys.argv) > 1 else "kubectl"
OUT, ERR, STATUS = 1, 2, 3
# The example of RFC 6455.
KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

config.load_kube_config()
core = client.CoreV1Api()
server = Server()


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ns = core.create_namespace({"metadata": {"generateName": "streams-"}}).metadata.name
        # The second server switches protocols and gives back what comes.
        echo = ("#!/bin/sh\nwhile read -r line && test ${#line} -gt 1; do :; done\n"
                f"printf 'HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                f"Sec-WebSocket-Accept: {ACCEPT}\\r\\n\\r\\n'\nexec cat\n")
        script = (f"echo out; echo err >&2; echo served > /srv/file; echo {base64.b64encode(echo.encode()).decode()} "
                  "| base64 -d > /srv/echo; chmod +x /srv/echo; nc -ll -p 8081 -e /srv/echo & "
                  'httpd -p 8080 -h /srv; while read line; do echo "heard $line"; done; exec sleep 3600')
        core.create_namespaced_pod(cls.ns, {"metadata": {"name": "app", "labels": {"app": "app"}}, "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "c", "image": IMAGE, "command": ["sh", "-c", script], "stdin": True,
                "volumeMounts": [{"name": "srv", "mountPath": "/srv"}]}],
            "volumes": [{"name": "srv", "emptyDir": {}}]}})
        core.create_namespaced_service(cls.ns, {"metadata": {"name": "app"}, "spec": {
            "selector": {"app": "app"}, "ports": [{"name": "echo", "port": 81, "targetPort": 8081}]}})
        watcher = watch.Watch()
        for e in watcher.stream(core.list_namespaced_pod, cls.ns, timeout_seconds=120):
            conditions = e["object"].status.conditions or []
            if any(c.type == "Ready" and c.status == "True" for c in conditions):
                watcher.stop()

    @classmethod
    def tearDownClass(cls):
        core.delete_namespace(cls.ns)

    def path(self, tail, *query):
        return f"/api/v1/namespaces/{self.ns}/{tail}?{urllib.parse.urlencode(query)}"

    def open(self, tail, protocol, *query):
        """A WebSocket to a subresource of the Pod."""
        near = websocket.create_connection(
            server.url.replace("https", "wss") + self.path(f"pods/app/{tail}", *query), timeout=60,
            subprotocols=[protocol] if protocol else None,
            sslopt={"ca_certs": server.files["ca"], "certfile": server.files["certificate"],
                    "keyfile": server.files["key"]})
        self.addCleanup(near.shutdown)
        # The library makes it small.
        self.assertEqual(protocol.lower() or None, near.getsubprotocol())
        return near

    def messages(self, near, protocol):
        """What comes until the end, by channel."""
        channels = {}
        while True:
            kind, data = near.recv_data()
            if kind == websocket.ABNF.OPCODE_CLOSE:
                return channels
            channel, data = self.message(kind, data, protocol)
            channels[channel] = channels.get(channel, b"") + data

    def message(self, kind, data, protocol):
        if "base64" in protocol:
            self.assertEqual(websocket.ABNF.OPCODE_TEXT, kind)
            return int(data[:1]), base64.b64decode(data[1:])
        self.assertEqual(websocket.ABNF.OPCODE_BINARY, kind)
        return data[0], data[1:]

    def send(self, near, protocol, channel, data):
        if "base64" in protocol:
            near.send(str(channel) + base64.b64encode(data).decode())
        else:
            near.send_binary(bytes([channel]) + data)

    CHANNELS = ("", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io",
                "v5.channel.k8s.io")

    def test_exec(self):
        run = [("command", w) for w in ("sh", "-c", "echo out; echo err >&2; exit 3")]
        for protocol in self.CHANNELS:
            with self.subTest(protocol):
                got = self.messages(self.open("exec", protocol, *run, ("stdout", 1), ("stderr", 1)), protocol)
                self.assertEqual((b"out\n", b"err\n"), (got[OUT], got[ERR]))
                said = got[STATUS].decode()
                if protocol.startswith("v"):
                    said = json.loads(said)
                    self.assertEqual(("NonZeroExitCode", [{"reason": "ExitCode", "message": "3"}]),
                                     (said["reason"], said["details"]["causes"]))
                else:
                    self.assertRegex(said, "exit code.* 3|code 3")

    def test_exec_input(self):
        for protocol in self.CHANNELS:
            with self.subTest(protocol):
                near = self.open("exec", protocol, ("command", "head"), ("command", "-n1"), ("stdin", 1), ("stdout", 1))
                self.send(near, protocol, 0, b"h\xc3\xad\n")
                self.assertEqual(b"h\xc3\xad\n", self.messages(near, protocol)[OUT])

    def test_attach(self):
        for protocol in self.CHANNELS:
            with self.subTest(protocol):
                near = self.open("attach", protocol, ("stdin", 1), ("stdout", 1))
                self.send(near, protocol, 0, protocol.encode() + b"\n")
                heard = b""
                while not heard.endswith(b"\n"):
                    channel, data = self.message(*near.recv_data(), protocol)
                    heard += data if channel == OUT else b""
                self.assertEqual(b"heard " + protocol.encode() + b"\n", heard)

    def test_logs(self):
        for protocol in "", "binary.k8s.io", "base64.binary.k8s.io":
            with self.subTest(protocol):
                near, log = self.open("log", protocol, ("limitBytes", 8)), b""
                while True:
                    kind, data = near.recv_data()
                    if kind == websocket.ABNF.OPCODE_CLOSE:
                        break
                    text = protocol.startswith("base64")
                    self.assertEqual(websocket.ABNF.OPCODE_TEXT if text else websocket.ABNF.OPCODE_BINARY, kind)
                    log += base64.b64decode(data) if text else data
                self.assertEqual([b"err", b"out"], sorted(log.split()))

    def test_port_forward(self):
        for protocol in "v4.channel.k8s.io", "v4.base64.channel.k8s.io":
            with self.subTest(protocol):
                near = self.open("portforward", protocol, ("ports", 8081), ("ports", 8080))
                # Each of a port's two channels begins with its number.
                ports = dict(self.message(*near.recv_data(), protocol) for _ in range(4))
                self.assertEqual({channel: port.to_bytes(2, "little")
                                  for channel, port in enumerate((8081, 8081, 8080, 8080))}, ports)
                self.send(near, protocol, 2, b"GET /file HTTP/1.0\r\n\r\n")
                answer = b""
                while not answer.endswith(b"served\n"):
                    channel, data = self.message(*near.recv_data(), protocol)
                    self.assertEqual(2, channel, data)
                    answer += data
                self.assertRegex(answer, rb"^HTTP/1\.[01] 200 OK\r\n")

    def test_port_forward_tunnel(self):
        near = self.open("portforward", "SPDY/3.1+portforward.k8s.io")
        # Behind the WebSocket is SPDY: a ping is answered with itself.
        ping = b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01"
        near.send_binary(ping)
        answer = b""
        while len(answer) < len(ping):
            kind, data = near.recv_data()
            self.assertEqual(websocket.ABNF.OPCODE_BINARY, kind)
            answer += data
        self.assertEqual(ping, answer)

    def test_unknown_protocols(self):
        for tail, query in (("exec", [("command", "true"), ("stdout", 1)]), ("attach", [("stdout", 1)]), ("log", []),
                            ("portforward", [("ports", 8080)])):
            with self.subTest(tail), self.assertRaises(websocket.WebSocketBadStatusException) as raised:
                self.open(tail, "nothing.k8s.io", *query)
            self.assertEqual(403, raised.exception.status_code, tail)

    def kubectl(self, *args, **env):
        run = subprocess.run([KUBECTL, "-n", self.ns, *args], env={**os.environ, **env}, timeout=60,
                             input=b"in\n", capture_output=True)
        return run.returncode, run.stdout, run.stderr

    def test_spdy_exec(self):
        for websockets in "true", "false":
            with self.subTest(websockets=websockets):
                code, out, err = self.kubectl(
                    "exec", "-i", "app", "--", "sh", "-c", "cat; echo err >&2; exit 7",
                    KUBECTL_REMOTE_COMMAND_WEBSOCKETS=websockets)
                self.assertEqual((7, b"in\n"), (code, out))
                self.assertTrue(err.startswith(b"err\n"), err)

    def test_spdy_port_forward(self):
        for websockets in "true", "false":
            with self.subTest(websockets=websockets):
                forward = subprocess.Popen(
                    [KUBECTL, "-n", self.ns, "port-forward", "pod/app", ":8080"], stdout=subprocess.PIPE, text=True,
                    env={**os.environ, "KUBECTL_PORT_FORWARD_WEBSOCKETS": websockets})
                try:
                    port = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())[1]
                    for _ in range(3):
                        with urllib.request.urlopen(f"http://127.0.0.1:{port}/file", timeout=60) as answer:
                            self.assertEqual(b"served\n", answer.read())
                finally:
                    forward.terminate()
                    forward.wait()
                    forward.stdout.close()

    def test_watch(self):
        def open(**kwargs):
            near = websocket.create_connection(
                server.url.replace("https", "wss") + self.path("configmaps", ("watch", 1), ("timeoutSeconds", 2)),
                timeout=60, **kwargs, sslopt={"ca_certs": server.files["ca"], "keyfile": server.files["key"],
                                              "certfile": server.files["certificate"]})
            self.addCleanup(near.shutdown)
            return near

        near = open(subprotocols=["any"])
        self.assertEqual("any", near.getsubprotocol())
        core.create_namespaced_config_map(self.ns, {"metadata": {"name": "seen"}})
        seen = {}
        while (message := near.recv_data())[0] != websocket.ABNF.OPCODE_CLOSE:
            self.assertEqual(websocket.ABNF.OPCODE_TEXT, message[0])
            event = json.loads(message[1])
            seen[event["object"]["metadata"]["name"]] = event["type"]
        self.assertEqual("ADDED", seen["seen"])
        kind, event = open(header=["Accept: application/vnd.kubernetes.protobuf;stream=watch"]).recv_data()
        self.assertEqual((websocket.ABNF.OPCODE_BINARY, b"\n\x05ADDED"), (kind, event[:7]))
        for code, kwargs in (403, {"suppress_origin": True}), (400, {"subprotocols": ["one", "two"]}):
            with self.assertRaises(websocket.WebSocketBadStatusException) as raised:
                open(**kwargs)
            self.assertEqual(code, raised.exception.status_code)

    def test_proxies_switch_protocols(self):
        for tail in "pods/app:8081/proxy/echo", "services/app:echo/proxy/echo":
            with self.subTest(tail), server.connect() as near:
                near.settimeout(60)
                near.sendall(head("GET", self.path(tail, ("a", "b")), "Connection: Upgrade", "Upgrade: websocket",
                                  f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13"))
                answer = near.makefile("rb")
                self.assertTrue(answer.readline().startswith(b"HTTP/1.1 101 "))
                lines = iter(lambda: answer.readline().strip().lower(), b"")
                headers = dict(line.split(b": ", 1) for line in lines)
                self.assertEqual((b"websocket", ACCEPT.lower().encode()),
                                 (headers[b"upgrade"], headers[b"sec-websocket-accept"]))
                near.sendall(b"\x81\x82\0\0\0\0hi")
                self.assertEqual(b"\x81\x82\0\0\0\0hi", answer.read(8))


if __name__ == "__main__":
    unittest.main()
