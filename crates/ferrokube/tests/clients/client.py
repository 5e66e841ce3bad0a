"""The Python client library against a running cluster: each answer is what a v1.36 API server gives."""

import asyncio
import base64
import datetime
import json
import queue
import unittest

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.aio import client as aio_client, config as aio_config, watch as aio_watch
from kubernetes.aio.stream import WsApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import exceptions as dynamic_errors
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer
from kubernetes.stream import portforward, stream

IMAGE = "test.local/app:1"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

config.load_kube_config()
core = client.CoreV1Api()
apps = client.AppsV1Api()


def status(error):
    return json.loads(error.body)


class Case(unittest.TestCase):
    """A case with a namespace of its own."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        made = core.create_namespace({"metadata": {"generateName": "python-"}})
        cls.ns = made.metadata.name

    @classmethod
    def tearDownClass(cls):
        core.delete_namespace(cls.ns)

    def refused(self, code, reason, call, *args, **kwargs):
        """The Status of a request that must fail."""
        with self.assertRaises(ApiException) as raised:
            call(*args, **kwargs)
        said = status(raised.exception)
        self.assertEqual((code, reason, "Failure", "Status"),
                         (said["code"], said["reason"], said["status"], said["kind"]), said)
        self.assertEqual(code, raised.exception.status)
        return said

    def settings(self, name, data=None, **meta):
        return core.create_namespaced_config_map(
            self.ns, {"metadata": {"name": name, **meta}, "data": data or {"k": "v"}})


class Objects(Case):
    def test_create_read_replace_delete(self):
        made = core.create_namespaced_config_map(self.ns, client.V1ConfigMap(
            metadata=client.V1ObjectMeta(name="crud", labels={"a": "b"}),
            data={"text": "grüße\n"}, binary_data={"raw": base64.b64encode(b"\x00\xff").decode()}))
        self.assertIsInstance(made.metadata.creation_timestamp, datetime.datetime)
        self.assertTrue(made.metadata.uid)
        self.assertEqual("grüße\n", made.data["text"])
        self.assertEqual(made, core.read_namespaced_config_map("crud", self.ns))

        said = self.refused(409, "AlreadyExists", core.create_namespaced_config_map, self.ns,
                            {"metadata": {"name": "crud"}})
        self.assertEqual('configmaps "crud" already exists', said["message"])
        self.assertEqual({"name": "crud", "kind": "configmaps"}, said["details"])

        made.data["text"] = "two"
        replaced = core.replace_namespaced_config_map("crud", self.ns, made)
        self.assertNotEqual(made.metadata.resource_version, replaced.metadata.resource_version)
        said = self.refused(409, "Conflict", core.replace_namespaced_config_map, "crud", self.ns, made)
        self.assertEqual('Operation cannot be fulfilled on configmaps "crud": the object has been modified; '
                         "please apply your changes to the latest version and try again", said["message"])
        again = core.replace_namespaced_config_map("crud", self.ns, replaced)
        self.assertEqual(replaced.metadata.resource_version, again.metadata.resource_version,
                         "a write that changes nothing makes no new version")

        self.refused(409, "Conflict", core.delete_namespaced_config_map, "crud", self.ns,
                     body=client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another")))
        gone = core.delete_namespaced_config_map("crud", self.ns)
        self.assertEqual(("Success", "crud", "configmaps", made.metadata.uid),
                         (gone["status"], *(gone["details"][k] for k in ("name", "kind", "uid"))))
        said = self.refused(404, "NotFound", core.read_namespaced_config_map, "crud", self.ns)
        self.assertEqual('configmaps "crud" not found', said["message"])

    def test_generate_name_and_dry_run(self):
        body = {"metadata": {"generateName": "made-"}}
        dry = core.create_namespaced_config_map(self.ns, body, dry_run="All")
        self.assertRegex(dry.metadata.name, "^made-[bcdfghjklmnpqrstvwxz2456789]{5}$")
        self.refused(404, "NotFound", core.read_namespaced_config_map, dry.metadata.name, self.ns)

    def test_field_validation(self):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unknown"}, "nonsense": 1}
        path, caller = f"/api/v1/namespaces/{self.ns}/configmaps", client.ApiClient()

        def create(how):
            return caller.call_api("POST", f"{caller.configuration.host}{path}?fieldValidation={how}", {
                "Content-Type": "application/json", **dict(caller.default_headers)}, body)

        answer = create("Strict")
        said = json.loads(answer.read())
        self.assertEqual((400, "BadRequest"), (answer.status, said["reason"]))
        self.assertIn('strict decoding error: unknown field "nonsense"', said["message"])
        answer = create("Warn")
        self.assertEqual((201, '299 - "unknown field \\"nonsense\\""'),
                         (answer.status, answer.headers["Warning"]))

    def test_invalid(self):
        said = self.refused(422, "Invalid", apps.create_namespaced_deployment, self.ns, {
            "metadata": {"name": "bad"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c"}]}}}})
        causes = {(c["field"], c["reason"]) for c in said["details"]["causes"]}
        self.assertEqual({("spec.template.metadata.labels", "FieldValueInvalid"),
                          ("spec.template.spec.containers[0].image", "FieldValueRequired")}, causes)

    def test_list_pages_and_selectors(self):
        for i in range(5):
            self.settings(f"page-{i}", labels={"page": "yes", "half": "low" if i < 3 else "high"})
        names, token, versions = [], None, set()
        while True:
            page = core.list_namespaced_config_map(self.ns, label_selector="page", limit=2, _continue=token)
            names += [o.metadata.name for o in page.items]
            versions.add(page.metadata.resource_version)
            token = page.metadata._continue
            if not token:
                self.assertIsNone(page.metadata.remaining_item_count)
                break
        self.assertEqual([f"page-{i}" for i in range(5)], names)
        self.assertEqual(1, len(versions), "all pages are of one revision")
        first = core.list_namespaced_config_map(self.ns, limit=1)
        self.assertGreaterEqual(first.metadata.remaining_item_count, 5)

        def found(**selectors):
            return [o.metadata.name for o in core.list_namespaced_config_map(self.ns, **selectors).items]

        self.assertEqual(["page-3", "page-4"], found(label_selector="page,half notin (low)"))
        self.assertEqual(["page-1"], found(label_selector="half=low", field_selector="metadata.name=page-1"))
        self.refused(400, "BadRequest", found, label_selector="a in (")
        self.refused(400, "BadRequest", found, field_selector="data.k=v")
        self.refused(400, "BadRequest", found, _continue="nonsense")
        everywhere = core.list_config_map_for_all_namespaces(label_selector="half=high")
        self.assertEqual({self.ns}, {o.metadata.namespace for o in everywhere.items})

        core.delete_collection_namespaced_config_map(self.ns, label_selector="half=low")
        self.assertEqual(["page-3", "page-4"], found(label_selector="page"))

    def test_versions_of_lists(self):
        made = self.settings("versions")
        rv = made.metadata.resource_version
        core.delete_namespaced_config_map("versions", self.ns)
        then = core.list_namespaced_config_map(
            self.ns, resource_version=rv, resource_version_match="Exact", field_selector="metadata.name=versions")
        self.assertEqual((["versions"], rv),
                         ([o.metadata.name for o in then.items], then.metadata.resource_version))
        later = core.list_namespaced_config_map(
            self.ns, resource_version=rv, resource_version_match="NotOlderThan")
        self.assertGreater(int(later.metadata.resource_version), int(rv))
        self.refused(400, "BadRequest", core.list_namespaced_config_map, self.ns, resource_version="words")
        said = self.refused(504, "Timeout", core.list_namespaced_config_map, self.ns,
                            resource_version=str(int(rv) + 1_000_000), resource_version_match="NotOlderThan")
        self.assertEqual("ResourceVersionTooLarge", said["details"]["causes"][0]["reason"])

    def test_subresources(self):
        apps.create_namespaced_deployment(self.ns, deployment("sub", replicas=0))
        scale = apps.read_namespaced_deployment_scale("sub", self.ns)
        self.assertEqual((0, "app=sub"), (scale.spec.replicas or 0, scale.status.selector))
        scale.spec.replicas = 1
        scale.metadata.resource_version = None  # the controller writes the status meanwhile
        apps.replace_namespaced_deployment_scale("sub", self.ns, scale)
        self.assertEqual(1, apps.read_namespaced_deployment("sub", self.ns).spec.replicas)
        apps.patch_namespaced_deployment_scale("sub", self.ns, {"spec": {"replicas": 0}})
        changed = apps.patch_namespaced_deployment_status("sub", self.ns, {
            "spec": {"replicas": 7}, "metadata": {"labels": {"not": "taken"}}, "status": {"conditions": [
                {"type": "Mine", "status": "True", "reason": "R", "message": "m"}]}})
        self.assertEqual(0, changed.spec.replicas)
        self.assertIn("Mine", [c.type for c in changed.status.conditions])

    def test_service_account_token(self):
        core.create_namespaced_service_account(self.ns, {"metadata": {"name": "caller"}})
        token = core.create_namespaced_service_account_token(
            "caller", self.ns, {"spec": {"expirationSeconds": 600}}).status.token
        mine = client.Configuration.get_default_copy()
        mine.api_key = {"authorization": token}
        mine.api_key_prefix = {"authorization": "Bearer"}
        mine.cert_file = mine.key_file = None
        caller = client.ApiClient(mine)
        me = client.AuthenticationV1Api(caller).create_self_subject_review({})
        self.assertEqual(f"system:serviceaccount:{self.ns}:caller", me.status.user_info.username)
        said = self.refused(403, "Forbidden", client.CoreV1Api(caller).list_namespaced_secret, self.ns)
        self.assertEqual(
            f'secrets is forbidden: User "system:serviceaccount:{self.ns}:caller" cannot list resource '
            f'"secrets" in API group "" in the namespace "{self.ns}"', said["message"])
        mine.api_key = {"authorization": "nonsense"}
        self.refused(401, "Unauthorized", client.CoreV1Api(client.ApiClient(mine)).list_namespace)

    def test_from_yaml(self):
        utils.create_from_yaml(client.ApiClient(), yaml_objects=[
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "v"}},
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": {
                "schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "c", "image": IMAGE}]}}}}}},
        ], namespace=self.ns)
        self.assertEqual({"k": base64.b64encode(b"v").decode()}, core.read_namespaced_secret("key", self.ns).data)
        job = client.BatchV1Api().read_namespaced_cron_job("nightly", self.ns)
        self.assertEqual(("Allow", 3, False), (job.spec.concurrency_policy,
                                               job.spec.successful_jobs_history_limit, job.spec.suspend))


def deployment(name, replicas=1):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [
                {"name": "c", "image": IMAGE, "env": [{"name": "A", "value": "1"}]}]}}}}


class Patches(Case):
    def containers(self, d):
        return {c.name: c.image for c in d.spec.template.spec.containers}

    def test_every_type(self):
        apps.create_namespaced_deployment(self.ns, deployment("patched", replicas=0))

        def patch(body, kind, **kwargs):
            return apps.patch_namespaced_deployment("patched", self.ns, body, _content_type=kind, **kwargs)

        d = patch([{"op": "test", "path": "/spec/replicas", "value": 0},
                   {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
                   {"op": "copy", "from": "/metadata/labels/x", "path": "/metadata/labels/z"}], JSON_PATCH)
        self.assertEqual({"x": "y", "z": "y"}, d.metadata.labels)
        self.refused(422, "Invalid", patch,
                     [{"op": "test", "path": "/spec/replicas", "value": 5}], JSON_PATCH)
        self.refused(422, "Invalid", patch, [{"op": "remove", "path": "/metadata/labels/none"}], JSON_PATCH)

        add = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "test.local/side:1"}]}}}}
        self.assertEqual({"c": IMAGE, "side": "test.local/side:1"}, self.containers(patch(add, STRATEGIC)))
        d = patch({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "env": [{"name": "B", "value": "2"}]}, {"name": "side", "$patch": "delete"}]}}}}, STRATEGIC)
        self.assertEqual({"c": IMAGE}, self.containers(d))
        self.assertEqual(["B", "A"], [e.name for e in d.spec.template.spec.containers[0].env])
        self.assertEqual({"side": "test.local/side:1"}, self.containers(patch(add, MERGE)))
        d = patch({"metadata": {"labels": {"x": None}}}, MERGE)
        self.assertEqual({"z": "y"}, d.metadata.labels)
        self.refused(409, "Conflict", patch, {"metadata": {"resourceVersion": "1"}}, MERGE)
        self.refused(415, "UnsupportedMediaType", patch, {}, "application/json")

    def test_apply(self):
        def apply(data, manager, **kwargs):
            return core.patch_namespaced_config_map(
                "applied", self.ns, {
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data},
                _content_type=APPLY, field_manager=manager, **kwargs)

        made = apply({"a": "1", "b": "1"}, "one")
        self.assertEqual([("one", "Apply")], [(m.manager, m.operation) for m in made.metadata.managed_fields])
        self.assertEqual({"f:data": {"f:a": {}, "f:b": {}}}, made.metadata.managed_fields[0].fields_v1)
        said = self.refused(409, "Conflict", apply, {"b": "2"}, "two")
        self.assertEqual([("FieldManagerConflict", 'conflict with "one"', ".data.b")],
                         [(c["reason"], c["message"], c["field"]) for c in said["details"]["causes"]])
        self.assertEqual({"a": "1", "b": "2"}, apply({"b": "2"}, "two", force=True).data)
        self.assertEqual({"b": "2"}, apply({}, "one").data, "what a manager no longer applies goes")
        same = apply({"b": "2"}, "two").metadata.resource_version
        self.assertEqual(same, apply({"b": "2"}, "two").metadata.resource_version)
        with self.assertRaises(ApiException) as raised:
            core.patch_namespaced_config_map("applied", self.ns, {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}, _content_type=APPLY)
        said = status(raised.exception)
        self.assertEqual((422, "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: "
                          "is required for apply patch"), (said["code"], said["message"]))


class Watches(Case):
    def test_resume(self):
        start = core.list_namespaced_config_map(self.ns).metadata.resource_version
        self.settings("a")
        core.patch_namespaced_config_map("a", self.ns, {"data": {"k": "2"}})
        self.settings("b")
        core.delete_namespaced_config_map("a", self.ns)

        def events(rv, count, **kwargs):
            seen = []
            watcher = watch.Watch()
            for e in watcher.stream(core.list_namespaced_config_map, self.ns, resource_version=rv,
                                    timeout_seconds=60, **kwargs):
                seen.append(e)
                if len(seen) == count:
                    watcher.stop()
            return seen

        def short(seen):
            return [(e["type"], e["object"].metadata.name) for e in seen]

        expected = [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
        seen = events(start, 4)
        self.assertEqual(expected, short(seen))
        versions = [int(e["object"].metadata.resource_version) for e in seen]
        self.assertEqual(sorted(set(versions)), versions, "each event has a later version than the one before")
        for at in range(3):
            resumed = events(str(versions[at]), 3 - at)
            self.assertEqual(expected[at + 1:], short(resumed))
        only = events(start, 1, field_selector="metadata.name=b")
        self.assertEqual([("ADDED", "b")], short(only))

    def test_a_label_that_goes_is_a_deletion(self):
        start = core.list_namespaced_config_map(self.ns).metadata.resource_version
        self.settings("chosen", labels={"chosen": "yes"})
        core.patch_namespaced_config_map("chosen", self.ns, {"metadata": {"labels": {"chosen": "no"}}})
        seen = watch.Watch().stream(core.list_namespaced_config_map, self.ns, label_selector="chosen=yes",
                                    resource_version=start, timeout_seconds=60)
        self.assertEqual(["ADDED", "DELETED"], [next(seen)["type"], next(seen)["type"]])
        seen.close()

    def test_initial_events(self):
        self.settings("first")
        watcher, seen = watch.Watch(), []
        for e in watcher.stream(core.list_namespaced_config_map, self.ns, send_initial_events=True,
                                allow_watch_bookmarks=True, resource_version_match="NotOlderThan",
                                timeout_seconds=60):
            if e["type"] == "BOOKMARK":
                self.assertEqual({"k8s.io/initial-events-end": "true"},
                                 e["raw_object"]["metadata"]["annotations"])
                break
            seen.append((e["type"], e["object"].metadata.name))
        self.assertIn(("ADDED", "first"), seen)

    def test_it_ends_in_time(self):
        start = core.list_namespaced_config_map(self.ns).metadata.resource_version
        ended = watch.Watch().stream(core.list_namespaced_config_map, self.ns, resource_version=start,
                                     field_selector="metadata.name=nobody", timeout_seconds=1)
        self.assertEqual([], list(ended))

    def test_informer(self):
        self.settings("there")
        heard = queue.Queue()
        informer = SharedInformer(core.list_namespaced_config_map, namespace=self.ns)
        for kind in (ADDED, MODIFIED, DELETED):
            informer.add_event_handler(kind, lambda o, kind=kind: heard.put((kind, o.metadata.name)))
        informer.start()

        def wait(kind, name):
            while heard.get(timeout=60) != (kind, name):
                pass

        wait(ADDED, "there")
        self.settings("new")
        wait(ADDED, "new")
        core.patch_namespaced_config_map("new", self.ns, {"data": {"k": "2"}})
        wait(MODIFIED, "new")
        core.delete_namespaced_config_map("there", self.ns)
        wait(DELETED, "there")
        self.assertEqual("2", informer.cache.get_by_key(f"{self.ns}/new").data["k"])
        informer.stop()


class Dynamic(Case):
    def test_it(self):
        api = dynamic.DynamicClient(client.ApiClient())
        deployments = api.resources.get(api_version="apps/v1", kind="Deployment")
        self.assertEqual(("deployments", True, ["deploy"]),
                         (deployments.name, deployments.namespaced, deployments.short_names))
        self.assertIn("scale", deployments.subresources)
        pods = api.resources.get(api_version="v1", kind="Pod")
        self.assertEqual("v1", pods.group_version)
        self.assertEqual("1.36", "{major}.{minor}".format(**api.version["kubernetes"]))

        start = deployments.get(namespace=self.ns).metadata.resourceVersion
        made = deployments.create(body=deployment("dynamic", replicas=0), namespace=self.ns)
        self.assertEqual(("RollingUpdate", 600), (made.spec.strategy.type, made.spec.progressDeadlineSeconds))
        got = deployments.get(name="dynamic", namespace=self.ns).to_dict()
        del got["metadata"]["resourceVersion"]  # the controller writes the status meanwhile
        got["metadata"]["labels"] = {"l": "replaced"}
        deployments.replace(body=got, namespace=self.ns)
        listed = deployments.get(namespace=self.ns, label_selector="l=replaced")
        self.assertEqual(["dynamic"], [d.metadata.name for d in listed.items])
        patched = deployments.patch(body={"metadata": {"name": "dynamic", "labels": {"l": "patched"}}},
                                    namespace=self.ns, content_type=MERGE)
        self.assertEqual("patched", patched.metadata.labels.l)
        patched = deployments.patch(body=[{"op": "replace", "path": "/metadata/labels/l", "value": "json"}],
                                    name="dynamic", namespace=self.ns, content_type=JSON_PATCH)
        self.assertEqual("json", patched.metadata.labels.l)

        mine = {"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "dynamic", "labels": {"l": "applied"}}}
        with self.assertRaises(dynamic_errors.ConflictError):
            deployments.server_side_apply(body=mine, namespace=self.ns, field_manager="applier")
        applied = deployments.server_side_apply(
            body=mine, namespace=self.ns, field_manager="applier", force_conflicts=True)
        self.assertEqual("applied", applied.metadata.labels.l)
        scaled = deployments.subresources["scale"].patch(
            body={"spec": {"replicas": 1}}, name="dynamic", namespace=self.ns, content_type=MERGE)
        self.assertEqual(("Scale", 1), (scaled.kind, scaled.spec.replicas))
        deployments.delete(name="dynamic", namespace=self.ns)
        with self.assertRaises(dynamic_errors.NotFoundError):
            while True:
                deployments.get(name="dynamic", namespace=self.ns)

        seen = []
        for e in api.watch(deployments, namespace=self.ns, resource_version=start, timeout=60):
            seen.append(e["type"])
            if e["type"] == "DELETED":
                break
        self.assertEqual("ADDED", seen[0])


class Pods(Case):
    """A Pod that serves, writes to both outputs, and says what it reads."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        script = ('echo out; echo err >&2; echo served > /srv/file; httpd -p 8080 -h /srv; '
                  'while read line; do echo "heard $line"; done; exec sleep 3600')
        cls.pod = "app"
        core.create_namespaced_pod(cls.ns, {"metadata": {"name": cls.pod, "labels": {"app": "app"}}, "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "c", "image": IMAGE, "command": ["sh", "-c", script], "stdin": True,
                "ports": [{"containerPort": 8080}],
                "volumeMounts": [{"name": "srv", "mountPath": "/srv"}]}],
            "volumes": [{"name": "srv", "emptyDir": {}}]}})
        core.create_namespaced_service(cls.ns, {"metadata": {"name": "app"}, "spec": {
            "selector": {"app": "app"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
        watcher = watch.Watch()
        for e in watcher.stream(core.list_namespaced_pod, cls.ns, timeout_seconds=120):
            conditions = e["object"].status.conditions or []
            if any(c.type == "Ready" and c.status == "True" for c in conditions):
                watcher.stop()

    def exec(self, *command, **kwargs):
        options = {"stderr": True, "stdin": False, "stdout": True, "tty": False, "_preload_content": False}
        return stream(core.connect_get_namespaced_pod_exec, self.pod, self.ns, command=list(command),
                      **{**options, **kwargs})

    def test_exec_outputs_and_exit_code(self):
        text = self.exec("sh", "-c", "echo one; echo two >&2", _preload_content=True)
        self.assertEqual(["one", "two"], sorted(text.split()))
        run = self.exec("sh", "-c", "echo one; echo two >&2; exit 7")
        self.assertEqual("v5.channel.k8s.io", run.subprotocol)
        run.run_forever(timeout=60)
        self.assertEqual(("one\n", "two\n", 7), (run.read_stdout(), run.read_stderr(), run.returncode))
        ok = self.exec("true")
        ok.run_forever(timeout=60)
        self.assertEqual(0, ok.returncode)

    def test_exec_stdin(self):
        run = self.exec("sh", "-c", "read line; echo got $line; cat | wc -c", stdin=True)
        run.write_stdin("hello\n")
        self.assertEqual("got hello", run.readline_stdout(timeout=60))
        for _ in range(64):
            run.write_stdin("x" * 16384)
        run.close_channel(0)
        # Once the connection has ended, the library's lines are empty whatever came before.
        run.run_forever(timeout=60)
        self.assertEqual((str(64 * 16384), 0), (run.read_stdout().strip(), run.returncode))

    def test_exec_binary_and_large(self):
        run = self.exec("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' '\\377'", binary=True)
        run.run_forever(timeout=60)
        data = run.read_stdout()
        self.assertEqual((3_000_000, {255}), (len(data), set(data)))

    def test_exec_terminal(self):
        run = self.exec("sh", "-c", "read _; stty size; test -t 1 && echo terminal", stdin=True, tty=True)
        run.write_channel(4, json.dumps({"Width": 99, "Height": 33}))
        run.write_stdin("\n")
        run.run_forever(timeout=60)
        self.assertIn("terminal", run.read_stdout())

    def test_exec_refused(self):
        with self.assertRaises(ApiException) as raised:
            self.exec("true", container="none")
        self.assertIn("400", str(raised.exception))
        with self.assertRaises(ApiException) as raised:
            stream(core.connect_get_namespaced_pod_exec, "none", self.ns, command=["true"])
        self.assertIn("404", str(raised.exception))

    def test_missing_program(self):
        run = self.exec("/no/such/program")
        run.run_forever(timeout=60)
        said = json.loads(run.read_channel(3))
        self.assertEqual("Failure", said["status"])

    def test_attach(self):
        run = stream(core.connect_get_namespaced_pod_attach, self.pod, self.ns, stdin=True, stdout=True,
                     stderr=True, tty=False, _preload_content=False)
        run.write_stdin("you\n")
        self.assertEqual("heard you", run.readline_stdout(timeout=60))
        run.close()

    def test_logs(self):
        def log(**kwargs):
            return core.read_namespaced_pod_log(self.pod, self.ns, **kwargs)

        self.assertEqual({"out", "err"}, set(log().splitlines()[:2]))
        self.assertEqual(1, len(log(tail_lines=1).splitlines()))
        self.assertEqual(3, len(log(limit_bytes=3)))
        self.assertRegex(log(timestamps=True), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z \w+\n")
        self.assertIn("out", log(since_seconds=3600))
        self.refused(400, "BadRequest", log, container="none")
        said = self.refused(400, "BadRequest", log, previous=True)
        self.assertIn('previous terminated container "c" in pod "app" not found', said["message"])
        self.refused(422, "Invalid", log, tail_lines=-1)

    def test_logs_follow(self):
        core.create_namespaced_pod(self.ns, {"metadata": {"name": "counts"}, "spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": IMAGE, "command": [
                "sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done"]}]}})
        watcher = watch.Watch()
        for e in watcher.stream(core.list_namespaced_pod, self.ns, field_selector="metadata.name=counts"):
            if e["object"].status.phase in ("Running", "Succeeded"):
                watcher.stop()
        lines = list(watch.Watch().stream(core.read_namespaced_pod_log, "counts", self.ns))
        self.assertEqual(["1", "2", "3", "4", "5"], lines)

    def test_port_forward(self):
        forward = portforward(core.connect_get_namespaced_pod_portforward, self.pod, self.ns, ports="8080")
        near = forward.socket(8080)
        near.setblocking(True)
        near.sendall(b"GET /file HTTP/1.0\r\n\r\n")
        answer = b""
        while got := near.recv(4096):
            answer += got
        self.assertTrue(answer.startswith(b"HTTP/1.0 200 OK") or answer.startswith(b"HTTP/1.1 200 OK"), answer)
        self.assertTrue(answer.endswith(b"\r\n\r\nserved\n"), answer)
        self.assertIsNone(forward.error(8080))

    def test_proxies(self):
        self.assertEqual("served\n", core.connect_get_namespaced_pod_proxy_with_path(
            f"{self.pod}:8080", self.ns, "file"))
        self.assertEqual("served\n", core.connect_get_namespaced_service_proxy_with_path(
            "app:http", self.ns, "file"))

    def test_eviction(self):
        made = core.create_namespaced_pod(self.ns, {"metadata": {"name": "victim"}, "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "c", "image": IMAGE, "command": ["sleep", "3600"]}]}})
        core.create_namespaced_pod_eviction("victim", self.ns, {"metadata": {"name": "victim"}})
        deletions = watch.Watch().stream(core.list_namespaced_pod, self.ns, field_selector="metadata.name=victim",
                                         resource_version=made.metadata.resource_version, timeout_seconds=60)
        self.assertTrue(any(e["type"] == "DELETED" for e in deletions))

    def test_asyncio(self):
        asyncio.run(self.asynchronous())

    async def asynchronous(self):
        await aio_config.load_kube_config()
        async with aio_client.ApiClient() as api:
            v1 = aio_client.CoreV1Api(api)
            pods = await v1.list_namespaced_pod(self.ns, label_selector="app=app")
            self.assertEqual([self.pod], [p.metadata.name for p in pods.items])
            await v1.create_namespaced_config_map(self.ns, {"metadata": {"name": "asynchronous"}})
            async with aio_watch.Watch().stream(
                    v1.list_namespaced_config_map, self.ns, timeout_seconds=60,
                    field_selector="metadata.name=asynchronous") as events:
                async for e in events:
                    self.assertEqual("ADDED", e["type"])
                    break
            changed = await v1.patch_namespaced_config_map(
                "asynchronous", self.ns, {"data": {"k": "v"}}, _content_type=MERGE)
            self.assertEqual({"k": "v"}, changed.data)
        async with WsApiClient() as api:
            text = await aio_client.CoreV1Api(api).connect_get_namespaced_pod_exec(
                self.pod, self.ns, command=["sh", "-c", "echo from v4"],
                stderr=True, stdin=False, stdout=True, tty=False)
            self.assertEqual("from v4\n", text)


class Server(unittest.TestCase):
    def test_versions(self):
        self.assertTrue(client.VersionApi().get_code().git_version.startswith("v1.36."))
        groups = {g.name for g in client.ApisApi().get_api_versions().groups}
        self.assertLessEqual({"apps", "batch", "networking.k8s.io", "rbac.authorization.k8s.io"}, groups)
        kinds = {r.name for r in core.get_api_resources().resources}
        self.assertLessEqual({"pods", "pods/exec", "namespaces/finalize", "serviceaccounts/token"}, kinds)

    def test_key_set(self):
        found = client.WellKnownApi().get_service_account_issuer_open_id_configuration()
        self.assertIn("id_token_signing_alg_values_supported", found)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
