//! Tests of the steps of rollouts, one after the other.

use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_000_000;

/// A Deployment and its ReplicaSets, made from short descriptions.
struct Case(Snapshot);

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

impl Case {
    /// Makes a Deployment of three Pods of the image `new`; `more` changes its spec.
    fn new(more: Value) -> Self {
        let mut spec = json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template("new"),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "revisionHistoryLimit": 0, "progressDeadlineSeconds": 600});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        let d =
            json!({"metadata": {"name": "d", "namespace": "n", "uid": "d", "generation": 1}, "spec": spec});
        let d: Deployment = serde_json::from_value(d).unwrap();
        let now = Timestamp::from_second(NOW).unwrap();
        Self(Snapshot { d, sets: Vec::new(), running: HashSet::new(), now, done: Done::default() })
    }
    /// Adds a ReplicaSet of an image, of a size, with a number of available Pods and all its annotations.
    fn set(mut self, image: &str, replicas: i32, available: i32) -> Self {
        let mut template = template(image);
        template["metadata"]["labels"][HASH_LABEL] = json!(image);
        let revision = (self.0.sets.len() + 1).to_string();
        let desired = wanted(&self.0.d);
        let annotations = json!({REVISION: revision, sizes::DESIRED: desired.to_string(),
            sizes::MAX: (desired + sizes::max_surge(&self.0.d)).to_string()});
        let created = Timestamp::from_second(NOW - 100 + self.0.sets.len() as i64).unwrap().to_string();
        let set = json!({
            "metadata": {"name": image, "uid": image, "generation": 1, "annotations": annotations, "creationTimestamp": created},
            "spec": {"replicas": replicas, "selector": {}, "template": template},
            "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available,
                "observedGeneration": 1, "terminatingReplicas": 0},
        });
        self.0.sets.push(Arc::new(serde_json::from_value(set).unwrap()));
        if image == "new" {
            self.0.d.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision);
            let text = "Created new replica set \"new\"".to_owned();
            status::note_progress(&mut self.0.d, "True", "NewReplicaSetCreated", text, self.0.now);
        }
        self
    }
    fn done(mut self, done: Done) -> Self {
        self.0.done = done;
        self
    }
    fn change(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        change(&mut self.0);
        self
    }
    /// Checks the next step, in its short form.
    fn check(&self, want: &str) {
        let each = |parts: Vec<String>| parts.iter().flat_map(|part| [" ", part]).collect::<String>();
        let list =
            |sets: &[Resize]| each(sets.iter().map(|(set, n)| format!("{}={n}", set.name())).collect());
        let got = match plan(&self.0) {
            Step::Refuse(status) => format!("refuse {}", status.is_some()),
            Step::Write(d) => {
                let status = d.status.unwrap_or_default();
                let reason = status::condition(&status, status::PROGRESSING).and_then(|c| c.reason.clone());
                format!("write {}", reason.unwrap_or_default())
            }
            Step::Annotate(set) => format!("annotate {}", set.name()),
            Step::Create(set) => {
                format!("create {} of revision {}", size(&set), revision::revision(&set).unwrap())
            }
            Step::Resize(sets) => format!("resize{}", list(&sets)),
            Step::CleanUp(sets) => {
                format!("clean up{}", each(sets.iter().map(|s| s.name().to_owned()).collect()))
            }
            Step::RollBack(rollback) => format!("roll back {}", rollback.reason),
            Step::Report(status, check) => {
                format!("report {} {}", status.replicas.unwrap_or(0), check.is_some())
            }
        };
        assert_eq!(got, want, "{:#?}", self.0.sets);
    }
}

#[test]
fn rolling() {
    let case = || Case::new(json!({}));
    case().check("create 3 of revision 1");
    // The new ReplicaSet is no larger than the surge beside the old one.
    case().set("old", 3, 3).check("create 1 of revision 2");
    case().set("old", 3, 3).set("new", 1, 0).check("report 4 true");
    case().set("old", 3, 3).set("new", 1, 1).check("resize old=2");
    case().set("old", 2, 2).set("new", 1, 1).check("resize new=2");
    case().set("old", 0, 0).set("new", 3, 3).check("report 3 false");
    case().set("old", 3, 1).set("new", 1, 0).check("report 4 true");
    let unavailable = json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}});
    Case::new(unavailable).set("old", 3, 1).set("new", 0, 0).check("resize old=2");
    // ReplicaSets are resized once in a sync.
    let resized = Done { resized: true, ..Done::default() };
    case().set("old", 2, 2).set("new", 1, 1).done(resized).check("report 3 true");
}

#[test]
fn recreating() {
    let case = || Case::new(json!({"strategy": {"type": "Recreate"}}));
    case().check("create 3 of revision 1");
    case().set("old", 3, 3).check("resize old=0");
    case().set("old", 0, 0).check("create 3 of revision 2");
    // The old ReplicaSet's Pods have not ended yet.
    case().set("old", 0, 0).change(|s| s.running = ["old".to_owned()].into()).check("report 0 false");
    case().set("old", 0, 0).set("new", 1, 1).check("resize new=3");
}

#[test]
fn scaling_does_not_move_the_rollout() {
    let scaled = |to: i32| {
        let case = Case::new(json!({})).set("old", 2, 2).set("new", 2, 2);
        case.change(|s| s.d.spec.as_mut().unwrap().replicas = Some(to))
    };
    scaled(3).check("resize old=1");
    scaled(6).check("resize new=4 old=3");
    let resized = Done { resized: true, ..Done::default() };
    scaled(6).done(resized).check("report 4 true");
    let paused = |s: &mut Snapshot| {
        s.d.spec.as_mut().unwrap().paused = Some(true);
        let condition = status::pause_condition(&s.d, s.now).unwrap();
        status::set_condition(s.d.status.get_or_insert_default(), condition);
    };
    Case::new(json!({})).set("old", 3, 3).change(paused).check("report 3 false");
    Case::new(json!({})).set("old", 0, 0).set("new", 3, 3).change(paused).check("clean up old");
}

#[test]
fn what_is_noted_first() {
    let all = || Case::new(json!({})).set("old", 0, 0).set("new", 3, 3);
    all().change(|s| s.d.spec.as_mut().unwrap().paused = Some(true)).check("write DeploymentPaused");
    all().change(|s| s.d.metadata.annotations = None).check("write NewReplicaSetCreated");
    all().change(|s| s.d.status = None).check("write FoundNewReplicaSet");
    let created = Done { created: true, ..Done::default() };
    all().change(|s| s.d.status = None).done(created).check("write NewReplicaSetCreated");
    all().change(|s| s.d.spec.as_mut().unwrap().min_ready_seconds = Some(5)).check("annotate new");
    let noted = Done { noted: true, ..Done::default() };
    all()
        .change(|s| s.d.spec.as_mut().unwrap().min_ready_seconds = Some(5))
        .done(noted)
        .check("report 3 false");
}

#[test]
fn ends() {
    let complete = |s: &mut Snapshot| {
        let status = s.d.status.get_or_insert_default();
        let conditions = status.conditions.take();
        *status = DeploymentStatus {
            replicas: Some(3),
            updated_replicas: Some(3),
            available_replicas: Some(3),
            observed_generation: Some(1),
            conditions,
            ..DeploymentStatus::default()
        };
    };
    let all = || Case::new(json!({})).set("old", 0, 0).set("new", 3, 3).change(complete);
    all().check("clean up old");
    all().done(Done { cleaned: true, ..Done::default() }).check("report 3 false");
    all().change(|s| Arc::make_mut(&mut s.sets[0]).status = None).check("report 3 false");
    Case::new(json!({"revisionHistoryLimit": 1}))
        .set("old", 0, 0)
        .set("new", 3, 3)
        .change(complete)
        .check("report 3 false");
    let deleted = |s: &mut Snapshot| {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(s.now);
        s.d.metadata.deletion_timestamp = Some(time);
    };
    Case::new(json!({})).set("old", 3, 3).change(deleted).check("report 3 false");
    let wish = |s: &mut Snapshot| {
        s.d.metadata
            .annotations
            .get_or_insert_default()
            .insert(revision::ROLLBACK.to_owned(), "1".to_owned());
    };
    all().change(wish).check("roll back DeploymentRollback");
    Case::new(json!({"selector": {}})).check("refuse true");
    Case::new(json!({"selector": {}})).change(|s| s.d.metadata.generation = None).check("refuse false");
}

/// Upstream's cases of `TestSyncDeploymentCreatesReplicaSet`, `TestSyncDeploymentDontDoAnythingDuringDeletion`,
/// `TestDontSyncDeploymentsWithEmptyPodSelector`, `TestReentrantRollback` and `TestScaleDownOldReplicaSets`.
#[test]
fn upstreams_syncs() {
    let one = || Case::new(json!({"replicas": 1}));
    one().check("create 1 of revision 1");
    let deleted = |s: &mut Snapshot| {
        s.d.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(s.now));
    };
    one().change(deleted).check("report 0 false");
    Case::new(json!({"replicas": 1, "selector": {}})).check("refuse true");
    let wish = |s: &mut Snapshot| {
        s.d.metadata
            .annotations
            .get_or_insert_default()
            .insert(revision::ROLLBACK.to_owned(), "0".to_owned());
    };
    one().set("old", 0, 0).set("new", 1, 1).change(wish).check("roll back DeploymentRollback");
    Case::new(json!({"strategy": {"type": "Recreate"}})).set("foo-0", 3, 3).check("resize foo-0=0");
}

/// Upstream's cases of `TestOldPodsRunning`: the number of Pods that the old sets' statuses tell, the phases of their Pods,
/// and whether the new set waits.
#[test]
fn pods_of_old_sets() {
    let check = |told: Option<i32>, phases: &[&str], want: bool| {
        let mut case = Case::new(json!({"strategy": {"type": "Recreate"}}));
        if let Some(told) = told {
            case = case.set("rs-1", 0, 0);
            Arc::make_mut(&mut case.0.sets[0]).status.as_mut().unwrap().replicas = told;
        }
        let ended = |phase: &&str| {
            crate::views::tests::view(&json!({"metadata": {}, "status": {"phase": phase}})).is_terminal()
        };
        if phases.iter().any(|phase| !ended(phase)) {
            case.0.running.insert("rs-1".to_owned());
        }
        let step = plan(&case.0);
        assert_eq!(matches!(step, Step::Report(..)), want, "{told:?} {phases:?}");
        assert_eq!(matches!(step, Step::Create(_)), !want, "{told:?} {phases:?}");
    };
    check(None, &[], false);
    check(Some(0), &["", ""], true);
    check(Some(1), &[], true);
    check(Some(0), &[], false);
    check(Some(0), &["Failed", "Succeeded"], false);
    check(Some(0), &["Unknown"], true);
    check(Some(0), &["Pending"], true);
    check(Some(0), &["Running"], true);
    check(Some(0), &["Failed", "Succeeded", "Pending"], true);
}

/// Upstream's cases of `TestDeploymentController_cleanupDeployment`: sizes and Pods of old sets, the limit, and the number
/// of sets that go.
#[test]
fn histories_are_cleaned() {
    let made = |sets: &[(i32, i32)], limit: i32| {
        let mut case = Case::new(json!({"replicas": 1, "revisionHistoryLimit": limit}));
        for (i, (size, pods)) in sets.iter().enumerate() {
            case = case.set(&format!("foo-{}", i + 1), *size, 0);
            Arc::make_mut(&mut case.0.sets[i]).status.as_mut().unwrap().replicas = *pods;
        }
        case
    };
    let gone = |case: &Case| {
        case.0.clean_up().map_or(0, |step| if let Step::CleanUp(all) = step { all.len() } else { 0 })
    };
    let check = |sets: &[(i32, i32)], limit: i32, want: usize| {
        assert_eq!(gone(&made(sets, limit)), want, "{sets:?} {limit}");
    };
    check(&[(0, 0); 3], 1, 2);
    check(&[(0, 0), (0, 1), (1, 0), (1, 1)], 0, 1);
    check(&[(0, 0); 2], 0, 2);
    check(&[(1, 1); 2], 0, 0);
    check(&[(0, 0); 3], i32::MAX, 0);
    let mut going = made(&[(0, 0)], 0);
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(going.0.now);
    Arc::make_mut(&mut going.0.sets[0]).metadata.deletion_timestamp = Some(time);
    assert_eq!(gone(&going), 0);
}

/// Upstream's cases of `TestDeploymentController_cleanupDeploymentOrder`: sizes and revisions of old sets, which were made
/// one after the other, the limit, and the numbers of the sets that go.
#[test]
fn the_oldest_revisions_go() {
    let check = |sets: &[(i32, &str)], limit: i32, want: &[&str]| {
        let mut case = Case::new(json!({"replicas": 1, "revisionHistoryLimit": limit}));
        for (i, (size, number)) in sets.iter().enumerate() {
            case = case.set(&(i + 1).to_string(), *size, *size);
            let annotations = Arc::make_mut(&mut case.0.sets[i]).metadata.annotations.as_mut().unwrap();
            annotations.insert(REVISION.to_owned(), (*number).to_owned());
            if number.is_empty() {
                annotations.remove(REVISION);
            }
        }
        let mut gone: Vec<String> = match case.0.clean_up() {
            Some(Step::CleanUp(all)) => all.iter().map(|rs| rs.name().to_owned()).collect(),
            _ => Vec::new(),
        };
        gone.sort();
        assert_eq!(gone, want, "{sets:?}");
    };
    check(&[(0, "1"), (0, "2")], 1, &["1"]);
    check(&[(0, "2"), (0, "1")], 1, &["2"]);
    check(&[(0, "1"), (0, "")], 1, &["2"]);
    check(&[(0, ""), (0, "2")], 1, &["1"]);
    check(&[(1, "1"), (0, "2"), (0, "3")], 1, &["2"]);
    check(&[(1, "1"), (1, "2"), (0, "3")], 1, &[]);
    check(&[(0, "3"), (0, "1"), (0, "4"), (0, "2")], 2, &["2", "4"]);
}

/// Upstream's cases of `TestDeploymentController_generateReplicaSetName` and `TestGenerateReplicaSetName`: the length of a
/// Deployment's name, and that of its part of a ReplicaSet's name, beside a hash of ten letters. Longer hashes there are
/// none.
#[test]
fn names_of_sets() {
    let check = |length: usize, want: usize| {
        let mut d = Case::new(json!({})).0.d;
        d.metadata.name = Some("a".repeat(length));
        let set = new_set(&d, &[], 1);
        let hash = set.metadata.labels.as_ref().unwrap()[HASH_LABEL].clone();
        // A shorter hash leaves more room.
        let part = "a".repeat((want + 10 - hash.len()).min(length));
        assert_eq!(set.name(), format!("{part}-{hash}"));
        assert!(set.name().len() <= NAME_LIMIT);
    };
    check(13, 13);
    check(250, 242);
    check(242, 242);
}
