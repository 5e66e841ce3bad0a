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
