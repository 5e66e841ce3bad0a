use super::*;
use serde_json::{Value, json};

fn service(more: &Value) -> Service {
    let mut service = json!({
        "metadata": {"name": "s", "namespace": "ns", "uid": "u", "labels": {"a": "b"}},
        "spec": {"clusterIP": "10.0.0.1"},
    });
    if let (Value::Object(spec), Value::Object(more)) = (&mut service["spec"], more.clone()) {
        spec.extend(more);
    }
    serde_json::from_value(service).unwrap()
}

fn endpoint(i: usize) -> Endpoint {
    Endpoint { addresses: vec![format!("10.1.{}.{}", i / 250, i % 250)], ..Endpoint::default() }
}

fn port(n: i32) -> Vec<EndpointPort> {
    vec![EndpointPort { port: Some(n), ..EndpointPort::default() }]
}

/// The numbers of endpoints of slices.
fn sizes<'s>(slices: impl IntoIterator<Item = &'s EndpointSlice>) -> Vec<usize> {
    slices.into_iter().map(size).collect()
}

/// A Service, the endpoints that it wants, its slices, and the limit of a slice.
struct Case {
    service: Service,
    limit: usize,
    slices: Vec<Arc<EndpointSlice>>,
}

impl Case {
    fn new(limit: usize) -> Self {
        Self { service: service(&json!({})), limit, slices: Vec::new() }
    }

    fn template(&self) -> Template<'_> {
        Template::new(&self.service, self.service.spec.as_ref().unwrap(), "IPv4", self.limit)
    }

    /// Adds slices with these endpoints of the port 80.
    fn with(mut self, parts: &[(usize, usize)]) -> Self {
        for part in parts {
            let mut slice = self.template().slice(port(80), (part.0..part.1).map(endpoint).collect());
            slice.metadata.name = Some(format!("s-{}", self.slices.len()));
            self.slices.push(Arc::new(slice));
        }
        self
    }

    fn lay_out(&self, wanted: impl Iterator<Item = usize>) -> Layout {
        let mut all = Wanted::default();
        for i in wanted {
            all.add(port(80), Some(endpoint(i)));
        }
        let mut layout = self.template().lay_out(all, &self.slices);
        layout.recycle(&self.template());
        layout
    }
}

/// Upstream's cases of filling, among them those of `TestReconcileEmpty` and `TestReconcileMaxEndpointsPerSlice`:
/// endpoints that are wanted, existing slices, and the sizes of slices that are created,
/// updated, deleted and left.
#[test]
fn filling() {
    type Sizes<'a> = (&'a [usize], &'a [usize], &'a [usize], &'a [usize]);
    let check = |limit: usize, wanted: usize, existing: &[(usize, usize)], expected: Sizes<'_>| {
        let case = Case::new(limit).with(existing);
        let layout = case.lay_out(0..wanted);
        let arcs = |all: &[Arc<EndpointSlice>]| sizes(all.iter().map(|s| &**s));
        let (create, update) = (sizes(&layout.create), sizes(&layout.update));
        let (delete, unchanged) = (arcs(&layout.delete), arcs(&layout.unchanged));
        let got = (&create[..], &update[..], &delete[..], &unchanged[..]);
        assert_eq!(got, expected, "{wanted} {existing:?}");
        let all: usize = sizes(layout.all()).iter().sum();
        assert_eq!((all, layout.figures.endpoints), (wanted, wanted));
        assert!(layout.all().all(|s| size(s) <= limit));
    };
    check(100, 0, &[], (&[0], &[], &[], &[]));
    check(100, 250, &[], (&[100, 100, 50], &[], &[], &[]));
    // `TestReconcileEndpointSlicesSomePreexisting`: a slice of its own, and the rest where it fits.
    check(100, 250, &[(0, 62), (62, 123)], (&[100], &[89], &[], &[61]));
    // `TestReconcileEndpointSlicesSomePreexistingWorseAllocation`: a new slice is made rather than two others written.
    check(100, 300, &[(0, 74), (74, 148)], (&[100, 52], &[], &[], &[74, 74]));
    check(100, 160, &[(0, 63), (63, 126)], (&[], &[97], &[], &[63]));
    check(100, 126, &[(0, 63), (63, 126)], (&[], &[], &[], &[63, 63]));
    // Of two slices with room the fuller one is taken.
    check(100, 150, &[(0, 50), (50, 120)], (&[], &[100], &[], &[50]));
    // A slice that is written anyway is filled first.
    check(100, 100, &[(0, 50), (90, 130)], (&[], &[50], &[], &[50]));
    check(100, 130, &[(0, 50), (50, 100), (200, 230)], (&[], &[80], &[30], &[50]));
    // Slices that are superfluous go, or take over what is new.
    check(10, 10, &[(100, 110), (110, 120)], (&[], &[10], &[10], &[]));
    check(10, 20, &[(100, 110)], (&[10], &[10], &[], &[]));
    check(10, 0, &[(0, 10)], (&[], &[0], &[], &[]));
    let limits = [
        (50, vec![50; 5]),
        (80, vec![80, 80, 80, 10]),
        (150, vec![150, 100]),
        (250, vec![250]),
        (500, vec![250]),
    ];
    for (limit, sizes) in limits {
        check(limit, 250, &[], (&sizes, &[], &[], &[]));
    }
}

#[test]
fn the_empty_slice_stays() {
    let mut case = Case::new(100);
    case.slices = case.lay_out(0..0).create.into_iter().map(Arc::new).collect();
    let again = case.lay_out(0..0);
    assert_eq!(
        (again.unchanged.len(), again.update.len(), again.create.len(), again.delete.len()),
        (1, 0, 0, 0)
    );
    // It is used, not replaced.
    let filled = case.lay_out(0..1);
    assert_eq!((sizes(&filled.update), filled.create.len(), filled.delete.len()), (vec![1], 0, 0));
    // One of a Service of the name that is gone is not.
    let mut foreign = (*case.slices[0]).clone();
    foreign.metadata.owner_references.as_mut().unwrap()[0].uid = "old".into();
    case.slices = vec![Arc::new(foreign)];
    let new = case.lay_out(0..1);
    assert_eq!((new.update.len(), new.create.len(), new.delete.len()), (0, 1, 1));
}

/// The labels are the Service's but for the three that the controller sets itself.
#[test]
fn labels() {
    let check = |own: Value, spec: Value, headless: bool| {
        let mut service = service(&spec);
        service.metadata.labels = serde_json::from_value(own.clone()).unwrap();
        let template = Template::new(&service, service.spec.as_ref().unwrap(), "IPv4", 100);
        let mut expected = json!({SERVICE: "s", MANAGED_BY: CONTROLLER});
        if headless {
            expected[HEADLESS] = json!("");
        }
        if let Some(value) = own.get("a") {
            expected["a"] = value.clone();
        }
        assert_eq!(json!(template.labels), expected, "{own} {spec}");
    };
    check(json!({}), json!({}), false);
    check(json!({"a": "b"}), json!({"clusterIP": "None"}), true);
    check(json!({"a": "b", SERVICE: "x", MANAGED_BY: "y", HEADLESS: "z"}), json!({}), false);
    // A change of the Service's labels is a write of all slices, and of them alone.
    let mut case = Case::new(100).with(&[(0, 3), (3, 6)]);
    case.service.metadata.labels = None;
    let layout = case.lay_out(0..6);
    assert_eq!((layout.update.len(), layout.figures.added, layout.figures.removed), (2, 0, 0));
}

/// A change beside the identity is a write of the one slice; hints and versions of Pods are none.
#[test]
fn changes_of_an_endpoint() {
    let with = |more: Value| -> Endpoint {
        let mut all = json!({"addresses": ["10.0.0.1"], "nodeName": "n", "zone": "z",
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"}});
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
        serde_json::from_value(all).unwrap()
    };
    let check = |more: Value, writes: usize, added: usize| {
        let mut case = Case::new(100);
        case.slices = vec![Arc::new(case.template().slice(port(80), vec![with(json!({}))]))];
        let mut wanted = Wanted::default();
        wanted.add(port(80), Some(with(more.clone())));
        let mut layout = case.template().lay_out(wanted, &case.slices);
        layout.recycle(&case.template());
        assert_eq!((layout.update.len(), layout.figures.added), (writes, added), "{more}");
    };
    check(json!({}), 0, 0);
    check(json!({"hints": {"forZones": [{"name": "z"}]}}), 0, 0);
    check(
        json!({"targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "7"}}),
        0,
        0,
    );
    check(json!({"targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "new"}}), 1, 0);
    check(json!({"zone": "y"}), 1, 0);
    check(json!({"nodeName": "m"}), 1, 0);
    check(json!({"conditions": {"ready": false, "serving": true, "terminating": true}}), 1, 0);
    check(json!({"hostname": "h"}), 1, 1);
    check(json!({"addresses": ["10.0.0.2"]}), 1, 1);
}

/// Slices of other ports take over from each other; each set of ports has slices of its own.
#[test]
fn ports() {
    let case = Case::new(100).with(&[(0, 5)]);
    let mut wanted = Wanted::default();
    for i in 0..5 {
        wanted.add(port(80 + i32::try_from(i % 2).unwrap()), Some(endpoint(i)));
    }
    wanted.add(port(90), None);
    let layout = case.template().lay_out(wanted, &case.slices);
    assert_eq!((sizes(&layout.create), sizes(&layout.update), layout.delete.len()), (vec![2], vec![3], 0));
    let mut other = Wanted::default();
    other.add(port(443), Some(endpoint(0)));
    let mut layout = case.template().lay_out(other, &case.slices);
    layout.recycle(&case.template());
    assert_eq!((layout.create.len(), layout.delete.len()), (0, 0));
    assert_eq!(layout.update[0].ports, Some(port(443)));
    assert_eq!(layout.update[0].metadata.name.as_deref(), Some("s-0"));
}

/// A slice's port and endpoints, or the endpoints that are wanted of a port: their numbers, and whether they are ready.
type Part<'a> = (i32, &'a dyn Fn(usize) -> bool, std::ops::Range<usize>);

fn all_ready(_: usize) -> bool {
    true
}

fn endpoint_that_is(i: usize, ready: bool) -> Endpoint {
    let conditions = serde_json::from_value(json!({ "ready": ready })).unwrap();
    Endpoint { conditions: Some(conditions), ..endpoint(i) }
}

/// Lays out endpoints with slices that are there, which the Service has made.
fn reconcile(service: &Service, there: &[Part<'_>], wanted: &[Part<'_>]) -> Layout {
    let template = Template::new(service, service.spec.as_ref().unwrap(), "IPv4", 100);
    let slice = |(i, (n, ready, all)): (usize, &Part<'_>)| {
        let all = all.clone().map(|i| endpoint_that_is(i, ready(i))).collect();
        let mut slice = template.slice(port(*n), all);
        slice.metadata.name = Some(format!("s-{i}"));
        Arc::new(slice)
    };
    let slices: Vec<_> = there.iter().enumerate().map(slice).collect();
    relaid(&template, &slices, wanted)
}

fn relaid(template: &Template<'_>, slices: &[Arc<EndpointSlice>], wanted: &[Part<'_>]) -> Layout {
    let mut all = Wanted::default();
    for (n, ready, range) in wanted {
        for i in range.clone() {
            all.add(port(*n), Some(endpoint_that_is(i, ready(i))));
        }
    }
    let mut layout = template.lay_out(all, slices);
    layout.recycle(template);
    layout
}

/// Upstream's cases of `TestReconcileEndpointSlicesUpdating`, `TestReconcileEndpointSlicesRecycling` and
/// `TestReconcileEndpointSlicesUpdatePacking`: the sizes of slices that are updated, the numbers of those that are
/// created, deleted and left, and of endpoints that come and of slices that would be enough.
#[test]
fn slices_that_are_written_again() {
    let check = |there: &[Part<'_>],
                 wanted: &[Part<'_>],
                 updated: &[usize],
                 others: [usize; 3],
                 figures: [usize; 2]| {
        let layout = reconcile(&service(&json!({})), there, wanted);
        let mut sizes = sizes(&layout.update);
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(sizes, updated);
        assert_eq!([layout.create.len(), layout.delete.len(), layout.unchanged.len()], others);
        assert_eq!([layout.figures.added, layout.figures.ideal], figures);
        assert_eq!(layout.figures.removed, 0);
    };
    let full: [Part<'_>; 3] =
        [(80, &all_ready, 0..100), (80, &all_ready, 100..200), (80, &all_ready, 200..250)];
    check(&full, &[(81, &all_ready, 0..250)], &[100, 100, 50], [0, 0, 0], [250, 3]);
    let ten: Vec<Part<'_>> =
        (0..10).map(|i| -> Part<'_> { (80, &all_ready, 30 * i..30 * (i + 1)) }).collect();
    check(&ten, &[(80, &all_ready, 0..300)], &[], [0, 0, 10], [0, 3]);
    check(&ten, &[(81, &all_ready, 0..300)], &[100, 100, 100], [0, 7, 0], [300, 3]);
    let tenth = |i: usize| !i.is_multiple_of(10);
    check(
        &[(80, &all_ready, 0..80), (80, &all_ready, 100..120)],
        &[(80, &tenth, 0..80), (80, &tenth, 100..120), (80, &all_ready, 200..215)],
        &[95, 20],
        [0, 0, 0],
        [15, 2],
    );
}

/// Upstream's cases of `TestReconcileEndpointSlicesServicesLabelsUpdating` and
/// `TestReconcileEndpointSlicesServicesReservedLabels`: the labels that a Service gets, and the number of writes.
#[test]
fn labels_that_change() {
    let check = |labels: Value, writes: usize| {
        let mut case = Case::new(100);
        case.service.metadata.labels = None;
        let case = case.with(&[(0, 100), (100, 200), (200, 250)]);
        let mut changed = case.service.clone();
        changed.metadata.labels = serde_json::from_value(labels.clone()).unwrap();
        let template = Template::new(&changed, changed.spec.as_ref().unwrap(), "IPv4", 100);
        let mut wanted = Wanted::default();
        (0..250).for_each(|i| wanted.add(port(80), Some(endpoint(i))));
        let layout = template.lay_out(wanted, &case.slices);
        assert_eq!((layout.update.len(), layout.create.len(), layout.delete.len()), (writes, 0, 0));
        for slice in &layout.update {
            assert_eq!(slice.metadata.labels.as_ref().unwrap()["foo"], "bar");
        }
    };
    check(json!({"foo": "bar"}), 3);
    check(json!({SERVICE: "bad", MANAGED_BY: "actor", HEADLESS: "invalid"}), 0);
}

/// Upstream's cases of `TestReconcileEndpointSlicesRecreation` and `TestReconcileHeadlessServiceNoPorts`.
#[test]
fn slices_of_this_service() {
    let check = |own: bool, ports: Option<Vec<EndpointPort>>, want: (usize, usize)| {
        let case = Case::new(100);
        let mut slice = case.template().slice(Vec::new(), vec![endpoint(1)]);
        slice.ports = ports;
        if !own {
            slice.metadata.owner_references.as_mut().unwrap()[0].uid = "different".to_owned();
        }
        let mut wanted = Wanted::default();
        wanted.add(Vec::new(), Some(endpoint(1)));
        let mut layout = case.template().lay_out(wanted, &[Arc::new(slice)]);
        layout.recycle(&case.template());
        assert_eq!((layout.create.len(), layout.delete.len(), layout.update.len()), (want.0, want.1, 0));
    };
    check(true, Some(Vec::new()), (0, 0));
    check(false, Some(Vec::new()), (1, 1));
    check(true, None, (0, 0));
}

/// Upstream's cases of `TestReconcile1EndpointSlice` and `TestPlaceHolderSliceCompare`, as far as Rust has them: changes
/// of the one empty slice, whether it stays as it is, and whether another takes its place.
#[test]
fn the_empty_slice() {
    let check = |change: fn(&mut EndpointSlice), stays: bool| {
        let case = Case::new(100);
        let mut slice = case.template().slice(Vec::new(), Vec::new());
        slice.metadata.name = Some("foo-1".to_owned());
        change(&mut slice);
        let mut layout = case.template().lay_out(Wanted::default(), &[Arc::new(slice)]);
        layout.recycle(&case.template());
        let got = (layout.unchanged.len(), layout.update.len(), layout.create.len(), layout.delete.len());
        assert_eq!(got, if stays { (1, 0, 0, 0) } else { (0, 1, 0, 0) });
        assert_eq!((layout.figures.slices, layout.figures.ideal), (1, 1));
    };
    check(|_| {}, true);
    check(|s| s.ports = None, true);
    check(|s| s.metadata.name = Some("bar".to_owned()), true);
    check(
        |s| s.metadata.creation_timestamp = serde_json::from_value(json!("1970-01-01T00:00:02Z")).unwrap(),
        true,
    );
    check(|s| s.metadata.labels = Some([("bar".to_owned(), "baz".to_owned())].into()), false);
    check(|s| s.ports = Some(port(80)), false);
}

/// Upstream's cases of `TestSetEndpointSliceLabels` and `TestNewEndpointSlice`: a Service's labels and annotations, its
/// address, and the labels of its slices beside the controller's.
///
/// DIFFERENCE: upstream leaves a slice as it is that lacks nothing but the controller's own labels; here it gets them.
#[test]
fn labels_of_slices() {
    let check = |labels: Value, headless: bool, want: Value| {
        let mut service = service(&json!({"clusterIP": if headless { "None" } else { "1.1.1.1" }}));
        service.metadata.labels = serde_json::from_value(labels.clone()).unwrap();
        service.metadata.annotations = Some([("foo".to_owned(), "bar".to_owned())].into());
        let template = Template::new(&service, service.spec.as_ref().unwrap(), "IPv4", 100);
        let slice = template.slice(port(80), Vec::new());
        let mut all = want;
        all[SERVICE] = "s".into();
        all[MANAGED_BY] = CONTROLLER.into();
        if headless {
            all[HEADLESS] = "".into();
        }
        assert_eq!(json!(slice.metadata.labels), all, "{labels}");
        assert_eq!(slice.metadata.annotations, None);
        assert_eq!(slice.metadata.generate_name.as_deref(), Some("s-"));
        let owner = &slice.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Service", "u", Some(true)));
    };
    let foo = || json!({"foo": "bar"});
    check(json!({}), false, json!({}));
    check(foo(), true, foo());
    check(json!({}), true, json!({}));
    check(json!({HEADLESS: ""}), false, json!({}));
    check(foo(), false, foo());
    check(json!({"foo": "bar", "foo2": "bar2"}), false, json!({"foo": "bar", "foo2": "bar2"}));
    check(json!({SERVICE: "bad", MANAGED_BY: "actor", HEADLESS: "invalid"}), false, json!({}));
    check(json!({SERVICE: "bad", MANAGED_BY: "actor", "foo": "bar"}), false, foo());
}

/// Upstream's cases of `TestEndpointsEqualBeyondHash`.
#[test]
fn endpoints_that_say_the_same() {
    let check = |first: Value, second: Value, want: bool| {
        let of = |more: &Value| -> Endpoint {
            let mut all = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "zone": "zone-1",
                "nodeName": "node-1", "targetRef": {"kind": "Pod", "namespace": "default", "name": "pod0"}});
            for (key, value) in more.as_object().unwrap() {
                all[key] = value.clone();
            }
            serde_json::from_value(all).unwrap()
        };
        assert_eq!(says_the_same(&of(&first), &of(&second)), want, "{first} {second}");
    };
    let pod = |name: &str, version: &str| json!({"targetRef": {"kind": "Pod", "namespace": "default", "name": name, "resourceVersion": version}});
    let serving =
        |serving: bool| json!({"conditions": {"ready": true, "serving": serving, "terminating": false}});
    check(json!({}), json!({}), true);
    check(json!({}), json!({"nodeName": "node-2"}), false);
    check(json!({}), json!({"zone": "zone-2"}), false);
    check(json!({}), json!({"conditions": {"ready": false}}), false);
    check(json!({}), serving(true), false);
    check(serving(false), serving(true), false);
    check(pod("pod0", ""), pod("pod1", ""), false);
    check(pod("pod0", "1"), pod("pod0", "2"), true);
    check(pod("pod0", "1"), pod("pod0", ""), true);
}
