// The JavaScript client library against a running cluster: each answer is what a v1.36 API server gives.

import assert from 'node:assert/strict';
import { mkdtempSync, mkdirSync, readFileSync, watch, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

// Installed apart from the sources: see `xtask/src/setup.rs`.
const k8s = createRequire(join(process.env.FERROKUBE_CLIENTS, 'package.json'))('@kubernetes/client-node');

const IMAGE = 'test.local/app:1';
const kc = new k8s.KubeConfig();
kc.loadFromDefault();
const core = kc.makeApiClient(k8s.CoreV1Api);
const apps = kc.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(kc);
const as = (type) => k8s.setHeaderOptions('Content-Type', type);

let namespace;
before(async () => {
    namespace = (await core.createNamespace({ body: { metadata: { generateName: 'javascript-' } } })).metadata.name;
});
after(() => core.deleteNamespace({ name: namespace }));

/** The Status of a request that must fail. */
async function refused(code, reason, promise) {
    const error = await promise.then((o) => assert.fail(`it was taken: ${JSON.stringify(o)}`), (e) => e);
    if (!(error instanceof k8s.ApiException)) throw error;
    const said = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
    assert.deepEqual([error.code, said.code, said.reason, said.status, said.kind], [code, code, reason, 'Failure', 'Status']);
    return said;
}

const settings = (name, rest = {}) =>
    core.createNamespacedConfigMap({ namespace, body: { metadata: { name, ...rest }, data: { k: 'v' } } });

const deployment = (name) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name, namespace },
    spec: {
        replicas: 0,
        selector: { matchLabels: { app: name } },
        template: { metadata: { labels: { app: name } }, spec: { containers: [{ name: 'c', image: IMAGE }] } },
    },
});

/** Watches until `enough` says so of what was seen. */
function watched(path, query, enough) {
    return new Promise((resolve, reject) => {
        const seen = [];
        let request;
        const done = (error) => (enough(seen) ? resolve(seen) : reject(error ?? new Error(`ended with ${JSON.stringify(seen)}`)));
        new k8s.Watch(kc)
            .watch(path, query, (type, object) => {
                seen.push({ type, object });
                if (enough(seen)) {
                    resolve(seen);
                    request?.abort();
                }
            }, done)
            .then((r) => {
                request = r;
                if (enough(seen)) r.abort();
            }, reject);
    });
}

describe('objects', () => {
    test('are created, read, replaced and deleted', async () => {
        const made = await settings('crud');
        assert.ok(made.metadata.creationTimestamp instanceof Date);
        assert.deepEqual(await core.readNamespacedConfigMap({ name: 'crud', namespace }), made);
        const twice = await refused(409, 'AlreadyExists', settings('crud'));
        assert.equal(twice.message, 'configmaps "crud" already exists');

        const replaced = await core.replaceNamespacedConfigMap({ name: 'crud', namespace, body: { ...made, data: { k: '2' } } });
        assert.notEqual(replaced.metadata.resourceVersion, made.metadata.resourceVersion);
        await refused(409, 'Conflict', core.replaceNamespacedConfigMap({ name: 'crud', namespace, body: made }));
        const gone = await core.deleteNamespacedConfigMap({ name: 'crud', namespace });
        assert.deepEqual([gone.status, gone.details.uid], ['Success', made.metadata.uid]);
        await refused(404, 'NotFound', core.readNamespacedConfigMap({ name: 'crud', namespace }));
        await refused(422, 'Invalid', settings('Not_A_Name'));
    });

    test('are listed in pages and by selectors', async () => {
        for (let i = 0; i < 5; i++) await settings(`page-${i}`, { labels: { page: i < 3 ? 'low' : 'high' } });
        const names = [];
        let _continue;
        do {
            const page = await core.listNamespacedConfigMap({ namespace, labelSelector: 'page', limit: 2, _continue });
            names.push(...page.items.map((o) => o.metadata.name));
            _continue = page.metadata._continue;
        } while (_continue);
        assert.deepEqual(names, [0, 1, 2, 3, 4].map((i) => `page-${i}`));
        const high = await core.listNamespacedConfigMap({ namespace, labelSelector: 'page notin (low),page' });
        assert.deepEqual(high.items.map((o) => o.metadata.name), ['page-3', 'page-4']);
        await refused(400, 'BadRequest', core.listNamespacedConfigMap({ namespace, labelSelector: '=' }));
    });

    test('take every type of patch', async () => {
        const name = 'patched';
        await apps.createNamespacedDeployment({ namespace, body: deployment(name) });
        const patch = (body, type, rest = {}) => apps.patchNamespacedDeployment({ name, namespace, body, ...rest }, as(type));
        const side = { spec: { template: { spec: { containers: [{ name: 'side', image: 'test.local/side:1' }] } } } };
        const containers = (d) => d.spec.template.spec.containers.map((c) => c.name).sort();

        let d = await patch([{ op: 'add', path: '/metadata/labels', value: { x: 'y' } }], k8s.PatchStrategy.JsonPatch);
        assert.deepEqual(d.metadata.labels, { x: 'y' });
        await refused(422, 'Invalid', patch([{ op: 'test', path: '/spec/replicas', value: 9 }], k8s.PatchStrategy.JsonPatch));
        assert.deepEqual(containers(await patch(side, k8s.PatchStrategy.StrategicMergePatch)), ['c', 'side']);
        assert.deepEqual(containers(await patch(side, k8s.PatchStrategy.MergePatch)), ['side']);

        const mine = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { labels: { x: 'mine' } } };
        const conflict = await refused(409, 'Conflict', patch(mine, k8s.PatchStrategy.ServerSideApply, { fieldManager: 'mine' }));
        assert.deepEqual(conflict.details.causes.map((c) => [c.reason, c.field]), [['FieldManagerConflict', '.metadata.labels.x']]);
        d = await patch(mine, k8s.PatchStrategy.ServerSideApply, { fieldManager: 'mine', force: true });
        assert.deepEqual(d.metadata.labels, { x: 'mine' });
        await refused(415, 'UnsupportedMediaType', patch({}, 'application/json'));

        const scale = await apps.readNamespacedDeploymentScale({ name, namespace });
        scale.spec.replicas = 0;
        delete scale.metadata.resourceVersion; // the controller writes the status meanwhile
        assert.equal((await apps.replaceNamespacedDeploymentScale({ name, namespace, body: scale })).status.selector, `app=${name}`);
    });

    test('of any kind', async () => {
        const made = await objects.create(deployment('dynamic'));
        assert.equal(made.spec.strategy.type, 'RollingUpdate');
        const read = await objects.read(made);
        assert.equal(read.metadata.uid, made.metadata.uid);
        delete read.metadata.resourceVersion; // the controller writes the status meanwhile
        read.metadata.labels = { l: 'replaced' };
        assert.equal((await objects.replace(read)).metadata.labels.l, 'replaced');
        const listed = await objects.list('apps/v1', 'Deployment', namespace, undefined, undefined, undefined, undefined, 'l=replaced');
        assert.deepEqual(listed.items.map((o) => o.metadata.name), ['dynamic']);
        const change = (l) => ({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'dynamic', namespace, labels: { l } } });
        for (const type of [k8s.PatchStrategy.StrategicMergePatch, k8s.PatchStrategy.MergePatch]) {
            assert.equal((await objects.patch(change(type.length + ''), undefined, undefined, undefined, undefined, type)).metadata.labels.l, type.length + '');
        }
        const applied = await objects.patch(change('applied'), undefined, undefined, 'mine', true, k8s.PatchStrategy.ServerSideApply);
        assert.equal(applied.metadata.labels.l, 'applied');
        await objects.delete(made, undefined, undefined, undefined, undefined, 'Foreground');
        const list = k8s.loadAllYaml('apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: from-yaml}\n');
        for (const o of list) {
            o.metadata.namespace = namespace;
            assert.equal((await objects.create(o)).kind, o.kind);
        }
    });
});

describe('watches', () => {
    const path = () => `/api/v1/namespaces/${namespace}/configmaps`;

    test('go on where they were', async () => {
        const labelSelector = 'watched';
        const { metadata } = await core.listNamespacedConfigMap({ namespace });
        await settings('watched-a', { labels: { watched: '' } });
        await settings('watched-b', { labels: { watched: '' } });
        await core.patchNamespacedConfigMap({ name: 'watched-a', namespace, body: { data: { k: '2' } } }, as(k8s.PatchStrategy.MergePatch));
        await core.deleteNamespacedConfigMap({ name: 'watched-b', namespace });
        const short = (seen) => seen.map((e) => `${e.type} ${e.object.metadata.name}`);
        const expected = ['ADDED watched-a', 'ADDED watched-b', 'MODIFIED watched-a', 'DELETED watched-b'];
        const seen = await watched(path(), { resourceVersion: metadata.resourceVersion, labelSelector }, (s) => s.length === 4);
        assert.deepEqual(short(seen), expected);
        for (let at = 0; at < 3; at++) {
            const { resourceVersion } = seen[at].object.metadata;
            const rest = await watched(path(), { resourceVersion, labelSelector }, (s) => s.length === 3 - at);
            assert.deepEqual(short(rest), expected.slice(at + 1));
        }
    });

    test('begin with what is there', async () => {
        await settings('initial');
        const seen = await watched(
            path(),
            { sendInitialEvents: true, allowWatchBookmarks: true, resourceVersionMatch: 'NotOlderThan' },
            (s) => s.at(-1)?.type === 'BOOKMARK',
        );
        assert.equal(seen.at(-1).object.metadata.annotations['k8s.io/initial-events-end'], 'true');
        assert.ok(seen.some((e) => e.type === 'ADDED' && e.object.metadata.name === 'initial'));
    });

    test('feed an informer', async () => {
        const informer = k8s.makeInformer(kc, path(), () => core.listNamespacedConfigMap({ namespace }));
        const heard = [];
        const waiting = [];
        const note = (what) => (o) => {
            heard.push(`${what} ${o.metadata.name}`);
            for (const w of waiting) w();
        };
        for (const what of ['add', 'update', 'delete']) informer.on(what, note(what));
        const hear = (what) =>
            new Promise((resolve) => {
                const look = () => heard.includes(what) && resolve();
                waiting.push(look);
                look();
            });
        await settings('before');
        await informer.start();
        await hear('add before');
        await settings('informed');
        await hear('add informed');
        await core.patchNamespacedConfigMap({ name: 'informed', namespace, body: { data: { k: '2' } } }, as(k8s.PatchStrategy.MergePatch));
        await hear('update informed');
        assert.equal(informer.get('informed', namespace).data.k, '2');
        await core.deleteNamespacedConfigMap({ name: 'informed', namespace });
        await hear('delete informed');
        await informer.stop();
    });
});

describe('pods', () => {
    const pod = 'app';
    before(async () => {
        const script = 'echo out; echo err >&2; echo served > /srv/file; httpd -p 8080 -h /srv; while read line; do echo "heard $line"; done; exec sleep 3600';
        await core.createNamespacedPod({
            namespace,
            body: {
                metadata: { name: pod, labels: { app: pod } },
                spec: {
                    terminationGracePeriodSeconds: 0,
                    containers: [{ name: 'c', image: IMAGE, command: ['sh', '-c', script], stdin: true, volumeMounts: [{ name: 'srv', mountPath: '/srv' }] }],
                    volumes: [{ name: 'srv', emptyDir: {} }],
                },
            },
        });
        await core.createNamespacedService({
            namespace,
            body: { metadata: { name: pod }, spec: { selector: { app: pod }, ports: [{ port: 80, targetPort: 8080 }] } },
        });
        const ready = (s) => s.at(-1)?.object.status?.conditions?.some((c) => c.type === 'Ready' && c.status === 'True');
        await watched(`/api/v1/namespaces/${namespace}/pods`, { fieldSelector: `metadata.name=${pod}` }, ready);
    });

    /** What a command writes, and its Status. */
    async function exec(command, { input, tty = false, stderr = true } = {}) {
        const out = new PassThrough();
        const err = stderr ? new PassThrough() : null;
        const outputs = Promise.all([text(out), err ? text(err) : '']);
        const status = new Promise((resolve, reject) => {
            new k8s.Exec(kc).exec(namespace, pod, 'c', command, out, err, input ?? null, tty, resolve).catch(reject);
        });
        const [said, [stdout, stderrText]] = await Promise.all([status, outputs]);
        return { status: said, stdout, stderr: stderrText };
    }

    test('run commands', async () => {
        const done = await exec(['sh', '-c', 'echo one; echo two >&2; exit 7']);
        assert.deepEqual([done.stdout, done.stderr], ['one\n', 'two\n']);
        assert.deepEqual(
            [done.status.status, done.status.reason, done.status.details.causes],
            ['Failure', 'NonZeroExitCode', [{ reason: 'ExitCode', message: '7' }]],
        );
        assert.equal(done.status.message, 'command terminated with non-zero exit code: command terminated with exit code 7');
        assert.deepEqual((await exec(['true'])).status, { metadata: {}, status: 'Success' });
    });

    test('read what is sent to them until its end', async () => {
        const input = new PassThrough();
        const done = exec(['sh', '-c', 'wc -c; echo done'], { input });
        for (let i = 0; i < 32; i++) input.write('x'.repeat(10_000));
        input.end();
        assert.deepEqual((await done).stdout.trim().split(/\s+/), ['320000', 'done']);
    });

    test('have terminals', async () => {
        const { stdout } = await exec(['sh', '-c', 'test -t 1 && echo terminal'], { tty: true, stderr: false });
        assert.equal(stdout, 'terminal\r\n');
    });

    test('are attached to', async () => {
        const input = new PassThrough();
        const out = new PassThrough();
        const heard = new Promise((resolve) => {
            let all = '';
            out.on('data', (d) => (all += d).includes('heard you') && resolve());
        });
        const socket = await new k8s.Attach(kc).attach(namespace, pod, 'c', out, null, input, false);
        input.write('you\n');
        await heard;
        socket.close();
    });

    test('give files and take them', async () => {
        const dir = mkdtempSync(join(tmpdir(), 'cp-'));
        const cp = new k8s.Cp(kc);
        // It promises no more than that the copying began.
        const watcher = watch(dir);
        const come = new Promise((resolve) => watcher.on('change', (_, file) => file === 'file' && resolve()));
        await cp.cpFromPod(namespace, pod, 'c', 'file', dir, '/srv');
        await come;
        watcher.close();
        while (readFileSync(join(dir, 'file'), 'utf8') !== 'served\n') await new Promise(setImmediate);
        mkdirSync(join(dir, 'to'));
        writeFileSync(join(dir, 'to', 'given'), 'given\n');
        await cp.cpToPod(namespace, pod, 'c', join(dir, 'to'), '/srv');
        const given = async () => (await exec(['cat', '/srv/given'])).stdout;
        while ((await given()) !== 'given\n');
    });

    test('are logged', async () => {
        const log = async (name, options) => {
            const out = new PassThrough();
            await new k8s.Log(kc).log(namespace, name, 'c', out, options);
            return text(out);
        };
        const lines = (await log(pod)).split('\n');
        assert.deepEqual(lines.slice(0, 2).sort(), ['err', 'out']);
        assert.equal((await log(pod, { tailLines: 1 })).trim().split('\n').length, 1);
        assert.match(await log(pod, { timestamps: true }), /^\d{4}-\d\d-\d\dT[\d:.]+Z \w+\n/);
        const command = ['sh', '-c', 'for i in 1 2 3 4 5; do echo $i; sleep 0.2; done'];
        await core.createNamespacedPod({
            namespace,
            body: { metadata: { name: 'counts' }, spec: { restartPolicy: 'Never', containers: [{ name: 'c', image: IMAGE, command }] } },
        });
        const runs = (s) => ['Running', 'Succeeded'].includes(s.at(-1)?.object.status?.phase);
        await watched(`/api/v1/namespaces/${namespace}/pods`, { fieldSelector: 'metadata.name=counts' }, runs);
        assert.equal(await log('counts', { follow: true }), '1\n2\n3\n4\n5\n');
        await assert.rejects(log('none'), { code: 404 });
    });

    test('have their ports forwarded', async () => {
        const out = new PassThrough();
        const input = new PassThrough();
        const answer = new Promise((resolve) => {
            let all = '';
            out.on('data', (d) => (all += d).endsWith('served\n') && resolve(all));
        });
        const socket = await new k8s.PortForward(kc).portForward(namespace, pod, [8080], out, null, input);
        assert.equal(socket.protocol, 'v4.channel.k8s.io');
        input.write('GET /file HTTP/1.0\r\n\r\n');
        assert.match(await answer, /^HTTP\/1\.[01] 200 OK/);
        socket.close();
    });

    test('are reached through the proxies', async () => {
        const path = 'file';
        assert.equal(await core.connectGetNamespacedPodProxyWithPath({ name: `${pod}:8080`, namespace, path }), 'served\n');
        assert.equal(await core.connectGetNamespacedServiceProxyWithPath({ name: `${pod}:80`, namespace, path }), 'served\n');
    });
});

describe('the server', () => {
    test('says its version and health', async () => {
        const version = await kc.makeApiClient(k8s.VersionApi).getCode();
        assert.deepEqual([version.major, version.minor], ['1', '36']);
        const health = new k8s.Health(kc);
        assert.deepEqual([await health.readyz({}), await health.livez({})], [true, true]);
    });

    test('answers reviews', async () => {
        const api = kc.makeApiClient(k8s.AuthorizationV1Api);
        const review = await api.createSelfSubjectAccessReview({
            body: { spec: { resourceAttributes: { verb: 'get', resource: 'pods', namespace } } },
        });
        assert.equal(review.status.allowed, true);
    });
});
