//! Upstream's cases (`binder_test.go`, `delete_test.go`, `provision_test.go`, `recycle_test.go`) with upstream's results.
//!
//! `cases.json` holds them. Those of built-in plugins that make, recycle or remove volumes are not among them, since
//! there are none here.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::Deserialize;
use serde_json::{Value, json};

use super::claims::{self, World};
use super::names::{DEFAULT_CLASS, Named, claim_of, key_of, name};
use super::step::{Step, Write};
use super::{matching, volumes};

/// A case: objects before and after, and the events between.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    test: String,
    name: String,
    look: String,
    volumes: Vec<Value>,
    claims: Vec<Value>,
    volumes_after: Vec<Value>,
    claims_after: Vec<Value>,
    events: Vec<String>,
}

fn volume(v: &Value) -> Volume {
    let mut volume = json!({
        "metadata": {"name": v["name"], "annotations": v["annotations"], "labels": v["labels"],
            "finalizers": v["finalizers"]},
        "spec": {"capacity": {"storage": v["size"]}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "persistentVolumeReclaimPolicy": v["policy"], "storageClassName": v["class"],
            "volumeMode": v["mode"].as_str().unwrap_or("Filesystem"),
            "volumeAttributesClassName": v["attributes"]},
        "status": {"phase": v["phase"], "message": v["message"]},
    });
    if v["claim"].is_string() {
        volume["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
            "namespace": "default", "name": v["claim"], "uid": v["uid"]});
    }
    if v["deleting"] == true {
        volume["metadata"]["deletionTimestamp"] = json!("2020-02-18T10:30:30Z");
    }
    match &v["driver"] {
        Value::Null => volume["spec"]["gcePersistentDisk"] = json!({"pdName": ""}),
        driver => volume["spec"]["csi"] = json!({"driver": driver, "volumeHandle": "h"}),
    }
    serde_json::from_value(volume).unwrap()
}

fn claim(c: &Value) -> Claim {
    let modes = match &c["accessModes"] {
        Value::Null => json!(["ReadWriteOnce", "ReadOnlyMany"]),
        given => given.clone(),
    };
    let mut claim = json!({
        "metadata": {"name": c["name"], "namespace": "default", "uid": c["uid"],
            "annotations": c["annotations"]},
        "spec": {"accessModes": modes, "resources": {"requests": {"storage": c["size"]}},
            "volumeName": c["volume"], "storageClassName": c["class"],
            "volumeMode": c["mode"].as_str().unwrap_or("Filesystem"),
            "volumeAttributesClassName": c["attributes"]},
        "status": {"phase": c["phase"], "currentVolumeAttributesClassName": c["currentAttributes"]},
    });
    if let labels @ Value::Object(_) = &c["selector"] {
        claim["spec"]["selector"] = json!({"matchLabels": labels});
    }
    if c["modes"] == true {
        claim["status"]["accessModes"] = modes;
    }
    if c["capacity"].is_string() {
        claim["status"]["capacity"] = json!({"storage": c["capacity"]});
    }
    serde_json::from_value(claim).unwrap()
}

/// The classes of `provision_test.go`, and `wait` of `binder_test.go`.
fn class(name: &str, test: &str) -> Option<Arc<StorageClass>> {
    let (now, wait) = ("Immediate", "WaitForFirstConsumer");
    let (provisioner, mode) = match (test, name) {
        ("TestSync", "wait") => ("", wait),
        ("TestSync" | "TestSyncBlockVolume" | "TestDeleteSync" | "TestRecycleSync", _) => return None,
        (_, "gold" | "silver") => ("kubernetes.io/mock-volume", now),
        (_, "copper") => ("kubernetes.io/mock-volume", wait),
        (_, "external") => ("vendor.com/my-volume", now),
        (_, "external-wait") => ("vendor.com/my-volume-wait", wait),
        (_, "unknown-internal") => ("kubernetes.io/unknown", now),
        (_, "csi") => ("mydriver.csi.k8s.io", now),
        (_, "migrated") => ("kubernetes.io/gce-pd", now),
        _ => return None,
    };
    let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    Some(Arc::new(serde_json::from_value(class).unwrap()))
}

/// The objects as the API server has them, and the claims that the cache shows.
#[derive(Default)]
struct Objects {
    test: String,
    volumes: BTreeMap<String, Volume>,
    claims: BTreeMap<String, Claim>,
    /// The claims that the cache shows otherwise; `None` if not at all.
    shown: BTreeMap<String, Option<Claim>>,
    /// The classes that may be the default one, with whether they are.
    classes: Vec<(&'static str, bool)>,
    events: Vec<String>,
    failed: bool,
    writes: usize,
}

impl World for Objects {
    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.get(name).cloned().map(Arc::new)
    }
    fn candidates(&self, _: &Claim) -> Vec<Arc<Volume>> {
        self.volumes.values().cloned().map(Arc::new).collect()
    }
    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        class(name, &self.test)
    }
    fn classes(&self) -> Vec<Arc<StorageClass>> {
        let class = |(name, default): &(&str, bool)| {
            let marks = json!({DEFAULT_CLASS[0]: default.to_string()});
            let class = json!({"metadata": {"name": name, "annotations": marks}, "provisioner": "p"});
            Arc::new(serde_json::from_value(class).unwrap())
        };
        self.classes.iter().map(class).collect()
    }
    fn waiting_pods(&self, _: &Claim) -> Vec<String> {
        Vec::new()
    }
    fn provisions(&self) -> bool {
        true
    }
}

impl Objects {
    fn of(case: &Case) -> Self {
        let mut objects = Self { test: case.test.clone(), ..Self::default() };
        objects.volumes = case.volumes.iter().map(volume).map(|v| (name(&v.metadata).into(), v)).collect();
        for json in &case.claims {
            let (live, claim) = (json["live"] == true, claim(json));
            let key = key_of(&claim);
            if live {
                let before = objects.claims.remove(&key);
                objects.shown.insert(key.clone(), before);
            }
            objects.claims.insert(key, claim);
        }
        objects
    }

    /// The claim that a volume means, as the cache and then the API server tell.
    fn meant(&self, volume: &Volume) -> Option<Claim> {
        let named = Named::of(claim_of(volume)?);
        let key = format!("{}/{}", named.namespace, named.name);
        let right = |c: &&Claim| c.metadata.uid.as_deref() == Some(named.uid);
        let shown = self.shown.get(&key).map_or_else(|| self.claims.get(&key), Option::as_ref);
        shown.filter(right).or_else(|| self.claims.get(&key).filter(right)).cloned()
    }

    fn users(volume: &Volume) -> Vec<String> {
        let used = claim_of(volume).map(|r| Named::of(r).name);
        let pod = match used {
            Some("runningClaim") => "default/runningPod",
            Some("pendingClaim") => "default/pendingPod",
            _ => return Vec::new(),
        };
        vec![pod.to_owned()]
    }

    fn carry_out(&mut self, step: Step) -> bool {
        let more = step.more && step.write.is_some();
        match step.write {
            Some(Write::Volume(v)) => {
                let status = self.volumes[name(&v.metadata)].status.clone();
                self.volumes.insert(name(&v.metadata).to_owned(), Volume { status, ..*v });
            }
            Some(Write::VolumeStatus(v)) => {
                self.volumes.get_mut(name(&v.metadata)).unwrap().status = v.status;
            }
            Some(Write::Claim(c)) => {
                let status = self.claims[&key_of(&c)].status.clone();
                self.claims.insert(key_of(&c), Claim { status, ..*c });
            }
            Some(Write::ClaimStatus(c)) => {
                let key = key_of(&c);
                self.claims.get_mut(&key).unwrap().status = c.status;
            }
            None => self.writes = self.writes.wrapping_sub(1),
        }
        self.writes = self.writes.wrapping_add(1);
        self.events.extend(step.told.iter().map(|t| format!("{} {}", t.kind.as_str(), t.reason)));
        self.failed |= step.error.is_some();
        more
    }

    fn look_at_claim(&mut self, key: &str) {
        let mut steps = 0;
        while self.claims.get(key).cloned().is_some_and(|c| {
            let step = claims::plan(&c, self);
            self.carry_out(step)
        }) {
            steps += 1;
            assert!(steps < super::STEPS, "{key}");
        }
    }

    fn look_at_volume(&mut self, named: &str) {
        let mut steps = 0;
        while self.volumes.get(named).cloned().is_some_and(|v| {
            let meant = self.meant(&v);
            let step = volumes::plan(&v, meant.as_ref(), &|| Self::users(&v));
            self.carry_out(step)
        }) {
            steps += 1;
            assert!(steps < super::STEPS, "{named}");
        }
    }

    /// Looks at everything until nothing changes.
    fn settle(&mut self) {
        for _ in 0..20 {
            let before = self.writes;
            let claims: Vec<String> = self.claims.keys().cloned().collect();
            for key in &claims {
                self.look_at_claim(key);
            }
            let volumes: Vec<String> = self.volumes.keys().cloned().collect();
            for name in &volumes {
                self.look_at_volume(name);
            }
            if self.writes == before {
                return;
            }
        }
        panic!("it does not settle");
    }
}

fn check(case: &Case) {
    let mut objects = Objects::of(case);
    match case.look.as_str() {
        "volume" => objects.look_at_volume(case.volumes[0]["name"].as_str().unwrap()),
        "all" => objects.settle(),
        _ => objects.look_at_claim(&key_of(&claim(&case.claims[0]))),
    }
    let about = &case.name;
    let volumes: BTreeMap<_, _> =
        case.volumes_after.iter().map(volume).map(|v| (name(&v.metadata).to_owned(), v)).collect();
    for (name, expected) in &volumes {
        assert_eq!(objects.volumes.get(name), Some(expected), "{about}");
    }
    assert_eq!(objects.volumes.len(), volumes.len(), "{about}");
    let claims: BTreeMap<_, _> = case.claims_after.iter().map(claim).map(|c| (key_of(&c), c)).collect();
    for (key, expected) in &claims {
        assert_eq!(objects.claims.get(key), Some(expected), "{about}");
    }
    assert_eq!(objects.claims.len(), claims.len(), "{about}");
    // Upstream's test reads as many events as it expects.
    let read = objects.events.len().min(case.events.len());
    assert_eq!(objects.events.get(..read), Some(case.events.as_slice()), "{about}");
    assert_eq!(objects.failed, case.look == "claim error", "{about}");
}

#[test]
fn upstreams_cases() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases.json")).unwrap();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &cases {
        *counts.entry(&case.test).or_default() += 1;
        check(case);
    }
    let expected = [
        ("TestDeleteSync", 5),
        ("TestMultiSync", 2),
        ("TestProvisionMultiSync", 1),
        ("TestProvisionSync", 11),
        ("TestRecycleSync", 4),
        ("TestSync", 55),
        ("TestSyncBlockVolume", 18),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

/// Upstream's 7 cases of `TestRetroactiveStorageClassAssignment`: the classes, of which some are the default one, a claim,
/// and the class and phase that it has then.
#[test]
fn the_default_class_comes_later() {
    let check = |classes: &[(&'static str, bool)], json: Value, want: (Option<&str>, &str)| {
        let mut objects = Objects { classes: classes.to_vec(), ..Objects::default() };
        let claim = claim(&json);
        let key = key_of(&claim);
        objects.claims.insert(key.clone(), claim);
        objects.look_at_claim(&key);
        let after = &objects.claims[&key];
        let class = after.spec.as_ref().and_then(|s| s.storage_class_name.as_deref());
        let phase = after.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
        assert_eq!((class, phase), want, "{json}");
    };
    let of = |volume: &str, phase: &str, class: Option<&str>, marks: &[&str]| {
        let marks: BTreeMap<&str, &str> = marks.iter().map(|mark| (*mark, "yes")).collect();
        json!({"name": "c", "uid": "u", "size": "1Gi", "volume": volume, "phase": phase, "class": class,
            "annotations": marks})
    };
    let open = |class: Option<&str>, marks: &[&str]| of("", "Pending", class, marks);
    let (bound, by) = ("pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller");
    let (gold, silver, copper) = (("gold", true), ("silver", false), Some("copper"));
    check(&[], open(None, &[]), (None, "Pending"));
    check(&[gold, silver], of("test", "Bound", copper, &[bound, by]), (copper, "Lost"));
    check(&[gold, silver], of("test", "Bound", copper, &[]), (copper, "Pending"));
    check(&[gold, silver], open(None, &[]), (Some("gold"), "Pending"));
    check(&[gold, ("silver", true)], open(None, &[]), (Some("gold"), "Pending"));
    check(&[gold, ("copper", false)], open(copper, &[]), (copper, "Pending"));
    let marked = open(None, &["volume.beta.kubernetes.io/storage-class"]);
    check(&[gold, ("copper", false)], marked, (None, "Pending"));
}

/// Whatever was written last, the next look goes on from there to the same end.
#[test]
fn a_binding_goes_on_wherever_it_was_interrupted() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases.json")).unwrap();
    for case in cases.iter().filter(|c| c.test == "TestSync" && c.look == "claim") {
        let mut whole = Objects::of(case);
        let key = key_of(&claim(&case.claims[0]));
        whole.look_at_claim(&key);
        whole.settle();
        for stop in 0..super::STEPS {
            let mut broken = Objects::of(case);
            for _ in 0..stop {
                let step = claims::plan(&broken.claims[&key].clone(), &broken);
                if !broken.carry_out(step) {
                    break;
                }
            }
            // Another process sees the volumes first.
            let volumes: Vec<String> = broken.volumes.keys().cloned().collect();
            if stop > 0 {
                for volume in &volumes {
                    broken.look_at_volume(volume);
                }
            }
            broken.settle();
            assert_eq!(broken.claims, whole.claims, "{} after {stop}", case.name);
            assert_eq!(broken.volumes, whole.volumes, "{} after {stop}", case.name);
        }
    }
}

/// After upstream's `TestMatchVolume`, `TestFindingVolumeWithDifferentAccessModes`, `TestFindingPreboundVolumes` and
/// `TestBestMatchDelayed`.
#[test]
fn the_best_volume() {
    let of = |name: &str, size: &str, modes: &[&str], more: Value| {
        let mut v = volume(&json!({"name": name, "size": size, "phase": "Available", "policy": "Retain"}));
        let spec = v.spec.as_mut().unwrap();
        spec.access_modes = Some(modes.iter().map(|m| (*m).to_owned()).collect());
        spec.storage_class_name = more["class"].as_str().map(str::to_owned);
        if let Some(claim) = more["claim"].as_str() {
            spec.claim_ref = serde_json::from_value(json!({"namespace": "default", "name": claim})).ok();
        }
        v.metadata.labels = serde_json::from_value(more["labels"].clone()).ok();
        Arc::new(v)
    };
    let (rwo, rox, rwx) = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany");
    let all = vec![
        of("gce-1", "8G", &[rwo, rox], json!({})),
        of("gce-2", "10G", &[rwo, rox], json!({})),
        of("gce-labelled", "10G", &[rwo, rox], json!({"labels": {"gold": "yes"}})),
        of("nfs-5", "5G", &[rwo, rox, rwx], json!({})),
        of("nfs-10", "10G", &[rwo, rox, rwx], json!({})),
        of("silver", "8G", &[rwo, rox], json!({"class": "silver"})),
        of("meant", "100G", &[rwo, rox], json!({"claim": "chosen"})),
    ];
    let check = |named: &str, size: &str, modes: &[&str], more: Value, delayed: bool, expected: &str| {
        let mut json =
            json!({"name": named, "uid": "u", "size": size, "phase": "Pending", "accessModes": modes});
        for (key, value) in more.as_object().into_iter().flatten() {
            json[key] = value.clone();
        }
        let found = matching::find(&claim(&json), all.clone(), delayed).unwrap();
        assert_eq!(found.map(|v| name(&v.metadata).to_owned()).unwrap_or_default(), expected, "{json}");
    };
    let none = || json!({});
    check("c", "8G", &[rox, rwo], none(), false, "gce-1");
    check("c", "9G", &[rwo], none(), false, "gce-2");
    check("c", "1G", &[rwx], none(), false, "nfs-5");
    check("c", "8G", &[rwo, rwx], none(), false, "nfs-10");
    check("c", "500G", &[rwo], none(), false, "");
    check("c", "1G", &["ReadWriteOncePod"], none(), false, "");
    check("c", "1G", &[rwo], json!({"selector": {"gold": "yes"}}), false, "gce-labelled");
    check("c", "1G", &[rwo], json!({"selector": {"gold": "no"}}), false, "");
    check("c", "1G", &[rwo], json!({"class": "silver"}), false, "silver");
    check("c", "1G", &[rwo], json!({"mode": "Block"}), false, "");
    check("chosen", "1G", &[rwo], none(), false, "meant");
    check("chosen", "1G", &[rwo], none(), true, "meant");
    check("chosen", "500G", &[rwo], none(), false, "");
    check("c", "8G", &[rox, rwo], none(), true, "");
    assert_eq!(matching::modes_of(&all[3]), (3, "RWO,ROX,RWX".to_owned()));
}
