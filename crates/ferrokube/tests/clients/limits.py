"""What a client may not do to the server: too large, too deep, too slow."""

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import sys
import threading
import time
import unittest

from server import Http2, Server, answer, head

MIB = 1 << 20
MAPS = "/api/v1/namespaces/default/configmaps"
PROCESS = int(sys.argv.pop())
server = Server()


def ask(method, path, body=None, kind="application/json"):
    connection = http.client.HTTPSConnection(*server.address, context=server.tls("http/1.1"), timeout=100)
    connection.request(method, path, body, {"Content-Type": kind} if body else {})
    got = connection.getresponse()
    said = json.loads(got.read())
    connection.close()
    return got.status, said


def config_map(name, data="v"):
    return json.dumps({"metadata": {"name": name}, "data": {"k": data}})


def memory():
    for line in pathlib.Path(f"/proc/{PROCESS}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError("the server has ended")


class Size(unittest.TestCase):
    def refused(self, code, reason, text, method, path, body, kind="application/json"):
        got, said = ask(method, path, body, kind)
        self.assertEqual((code, reason), (got, said.get("reason")), said)
        self.assertIn(text, said["message"])

    def test_bodies(self):
        body = config_map("large")
        self.assertEqual(201, ask("POST", MAPS, body + " " * (3 * MIB - len(body)))[0])
        text = "Request entity too large: limit is 3145728"
        self.refused(413, "RequestEntityTooLarge", text, "POST", MAPS, body + " " * (3 * MIB - len(body) + 1))
        # Its length is not told before.
        self.refused(413, "RequestEntityTooLarge", text, "POST", MAPS, iter([b" " * MIB] * 4))
        self.refused(413, "RequestEntityTooLarge", text, "POST", MAPS, b" " * (16 * MIB))

    def test_depth(self):
        deep = 100_000
        for opening, closing in ("[", "]"), ('{"a":', "}"):
            body = '{"metadata":' + opening * deep + closing * deep + "}"
            self.refused(400, "BadRequest", "exceeded max depth", "POST", MAPS, body)
            got, _ = ask("POST", MAPS, body, "application/yaml")
            self.assertEqual(400, got)
            got, _ = ask("PATCH", MAPS + "/large", body, "application/merge-patch+json")
            self.assertEqual(400, got)
            got, _ = ask("PATCH", MAPS + "/large?fieldManager=m", body, "application/apply-patch+yaml")
            self.assertEqual(400, got)

    def test_yaml_that_grows(self):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        for i in range(1, 40):
            lines.append(f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]")
        bomb = "\n".join(["apiVersion: v1", "kind: ConfigMap", "metadata: {name: bomb}", *lines])
        before, start = memory(), time.monotonic()
        self.assertEqual(400, ask("POST", MAPS, bomb, "application/yaml")[0])
        self.assertEqual(400, ask("PATCH", MAPS + "/bomb?fieldManager=m", bomb, "application/apply-patch+yaml")[0])
        self.assertLess(time.monotonic() - start, 5)
        grown = memory() - before
        print(f"{grown / MIB:.0f} MiB more", file=sys.stderr)
        # Some 32 MiB for what aliases may repeat, on each of two threads; without a limit, it ends the process.
        self.assertLess(grown, 128 * MIB)

    def test_patches(self):
        ask("POST", MAPS, config_map("patched"))
        many = json.dumps([{"op": "test", "path": "/metadata/name", "value": "patched"}] * 10_001)
        self.refused(413, "RequestEntityTooLarge", "The allowed maximum operations in a JSON patch is 10000, got 10001",
                     "PATCH", MAPS + "/patched", many, "application/json-patch+json")
        grow = [{"op": "add", "path": "/data/a", "value": "x" * 1000}]
        grow += [{"op": "copy", "from": "/data", "path": f"/data/{i}"} for i in range(60)]
        before = memory()
        self.refused(422, "Invalid", "the server rejected our request due to an error in our request",
                     "PATCH", MAPS + "/patched", json.dumps(grow), "application/json-patch+json")
        grown = memory() - before
        print(f"{grown / MIB:.0f} MiB more", file=sys.stderr)
        self.assertLess(grown, 64 * MIB)

    def test_headers(self):
        # A selector of names, as a client with many may send it.
        selector = "a+in+(" + ",".join(f"v{i}" for i in range(9000)) + ")"
        self.assertGreater(len(selector), 50_000)
        code, said = ask("GET", f"{MAPS}?labelSelector={selector}")
        self.assertEqual((200, []), (code, said["items"]))
        client = Http2(server)
        client.get(1, f"{MAPS}?labelSelector={selector}")
        body = b""
        while (frame := client.read()) is not None and frame[0] != Http2.GOAWAY:
            if frame[0] == Http2.DATA and frame[1] == 1:
                body += frame[2]
                if body.endswith(b"}\n") or body.endswith(b"}"):
                    break
        self.assertEqual("ConfigMapList", json.loads(body)["kind"])
        near = server.connect()
        # The server answers and closes as soon as it has read enough, at most twice its limit.
        with contextlib.suppress(OSError):
            near.sendall(head("GET", "/livez", "X: " + "x" * (2 * MIB)))
        self.assertIn(b" 431 ", near.recv(4096))

    def test_timeouts(self):
        self.refused(400, "BadRequest", "invalid timeout specified in the request URL", "GET", MAPS + "?timeout=soon", None)
        self.assertEqual(200, ask("GET", MAPS + "?timeout=10s")[0])


class Patience(unittest.TestCase):
    """All at once, since each takes its time."""

    def test_all(self):
        self.started = time.monotonic()
        writes = threading.Event()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            tasks = [pool.submit(self.headers), pool.submit(self.body), pool.submit(self.watchers, writes)]
            writes.wait(100)
            tasks.append(pool.submit(self.list))
            for task in tasks:
                task.result()

    def gone(self, connection, least, most):
        """The server ends a connection, not before and not after."""
        start = time.monotonic()
        while server.holds(connection):
            self.assertLess(time.monotonic() - start, most, "the server still has the connection")
            time.sleep(0.2)
        self.assertGreaterEqual(time.monotonic() - start, least)

    def headers(self):
        near = server.connect()
        near.sendall(b"GET /livez HTTP/1.1\r\nHost: ser")
        self.gone(near, 25, 40)

    def body(self):
        near = server.connect()
        near.sendall(head("POST", MAPS, "Content-Type: application/json", "Content-Length: 100") + b'{"metadata"')
        start = time.monotonic()
        code, said = answer(near)
        self.assertEqual((504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
                         (code, said["reason"], said["message"]))
        self.assertTrue(55 < time.monotonic() - start < 70)
        self.gone(near, 0, 5)

    def watchers(self, writes):
        """Watchers that never read cost a bounded buffer, and then their connection."""
        path = MAPS + "?watch=true&allowWatchBookmarks=true"
        near = []
        for _ in range(20):
            near.append(server.connect(buffer=4096))
            near[-1].sendall(head("GET", path))
        clients = [Http2(server, buffer=4096) for _ in range(20)]
        for client in clients:
            client.get(1, path)
        reader = Http2(server)
        reader.get(1, path)
        counted = threading.Thread(target=self.read, args=(reader,), daemon=True)
        counted.start()
        before = memory()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(self.write, range(8)))
        grown = memory() - before
        print(f"20000 events of 1 KiB to 40 watchers that do not read: {grown / MIB:.0f} MiB more", file=sys.stderr)
        self.assertLess(grown, 200 * MIB)
        writes.set()
        for connection in near + [c.connection for c in clients]:
            self.gone(connection, 0, 30)
        self.assertTrue(server.holds(reader.connection), "one that reads stays")
        self.assertTrue(counted.is_alive())

    @staticmethod
    def read(reader):
        while frame := reader.read():
            if frame[0] == Http2.DATA and frame[2]:
                for stream in 0, 1:
                    reader.frame(8, 0, stream, len(frame[2]).to_bytes(4, "big"))

    @staticmethod
    def write(worker):
        connection = http.client.HTTPSConnection(*server.address, context=server.tls("http/1.1"), timeout=100)
        for i in range(2500):
            body = config_map(f"w{worker}-{i}", "x" * 1024)
            connection.request("POST", MAPS, body, {"Content-Type": "application/json"})
            got = connection.getresponse()
            assert got.status == 201, got.read()
            got.read()

    def list(self):
        near = server.connect(buffer=4096)
        near.sendall(head("GET", MAPS))
        other = Http2(server, buffer=4096)
        other.get(1, MAPS)
        self.gone(near, 55, 85)
        self.gone(other.connection, 0, 20)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
