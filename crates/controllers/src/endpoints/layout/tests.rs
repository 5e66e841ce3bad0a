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

/// Upstream's cases of filling: endpoints that are wanted, existing slices, and the sizes of slices that are created,
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
    // `…WorseAllocation`: a new slice is made rather than two others written.
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
    for (limit, sizes) in
        [(50, vec![50; 5]), (80, vec![80, 80, 80, 10]), (150, vec![150, 100]), (500, vec![250])]
    {
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
