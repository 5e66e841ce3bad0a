//! Jobs whose Pods are scheduled together, behind the gate `WorkloadWithJob` (upstream: `job_scheduling_manager.go`).
//!
//! A Job that is new gets a Workload and a PodGroup before its first Pod, and each of its Pods names the group. A Job
//! that somebody else groups, or that was there before the gate was on, is scheduled Pod by Pod.

use std::sync::Arc;

use api::Status;
use client::{Cached, Client, EventType, Index, Informer, KubeObject, Recorder};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGroup};
use k8s_openapi::api::scheduling::v1alpha2::{
    GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec, PodGroupTemplate,
    PodGroupTemplateReference, TypedLocalObjectReference, Workload, WorkloadPodGroupTemplateReference,
    WorkloadSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::rules::Rules;
use crate::common::fnv::Fnv;
use crate::common::{controller_of, controller_ref, safe_letters};
use crate::host::Host;
use crate::views::PodView;

/// The greatest length of an object's name.
const LONGEST: usize = 253;
const API: &str = "scheduling.k8s.io/v1alpha2";

/// The Workloads and PodGroups of Jobs.
pub(super) struct Gangs {
    workloads: Index<Workload>,
    groups: Index<PodGroup>,
}

/// Whether a Job's Pods can be scheduled together; upstream's `IsGangSchedulingCandidate`.
fn is_candidate(rules: Rules<'_>) -> bool {
    let spec = rules.0;
    let grouped = spec.template.spec.as_ref().is_some_and(|s| s.scheduling_group.is_some());
    let several = spec.parallelism.is_some_and(|n| n > 1);
    several && rules.is_indexed() && spec.completions == spec.parallelism && !grouped
}

/// Whether a Job has never started.
fn is_new(job: &Job, pods: &[Arc<PodView>]) -> bool {
    let Some(status) = &job.status else { return pods.is_empty() };
    let counted = |n: Option<i32>| n.unwrap_or(0) != 0;
    let suspended = status.conditions.iter().flatten().any(|c| c.type_ == "Suspended");
    pods.is_empty()
        && status.start_time.is_none()
        && !counted(status.succeeded)
        && !counted(status.failed)
        && !suspended
}

/// The result of a search for an object that belongs to a Job.
#[derive(Debug, PartialEq)]
enum Found<T> {
    /// There is none.
    None,
    /// The Job has this one.
    Own(Arc<T>),
    /// Somebody else made it, or there are several.
    Others,
}

fn found<T: KubeObject>(job: &Job, mut all: Vec<Arc<T>>) -> Found<T> {
    let Some(one) = all.pop() else { return Found::None };
    let own = controller_of(one.metadata()).is_some_and(|r| r.uid == job.uid());
    if all.is_empty() && own { Found::Own(one) } else { Found::Others }
}

/// The value under which the objects of a namespace stand that name another one.
fn place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// The Job that a Workload names.
fn job_of(workload: &Workload) -> Option<&str> {
    let named = workload.spec.controller_ref.as_ref()?;
    let is_job = named.api_group.as_deref() == Some("batch") && named.kind == "Job";
    (is_job && !named.name.is_empty()).then_some(named.name.as_str())
}

/// The Workload that a PodGroup names.
fn workload_of(group: &PodGroup) -> Option<&str> {
    let named = group.spec.pod_group_template_ref.as_ref()?.workload.as_ref()?;
    (!named.workload_name.is_empty()).then_some(named.workload_name.as_str())
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn hash(parts: &[&str]) -> String {
    let mut hash = Fnv::default();
    for part in parts {
        hash.write(part.as_bytes());
    }
    safe_letters(hash.sum())
}

/// The name of a Job's Workload; upstream's.
fn workload_name(job: &Job) -> String {
    // Go prints the uid's type with it.
    let hash = hash(&["(types.UID)", job.uid()]);
    format!("{}-{hash}", cut(job.name(), LONGEST - hash.len() - 1))
}

/// The name of a Workload's PodGroup; upstream's. Of two long names each has half of the room.
fn group_name(workload: &str, template: &str) -> String {
    let hash = hash(&[workload, template]);
    let room = LONGEST - hash.len() - 2;
    let half = room / 2;
    let (workload, template) = if workload.len() + template.len() <= room {
        (workload, template)
    } else if workload.len() <= half {
        (workload, cut(template, room - workload.len()))
    } else if template.len() <= half {
        (cut(workload, room - template.len()), template)
    } else {
        (cut(workload, room - half), cut(template, half))
    };
    format!("{workload}-{template}-{hash}")
}

fn meta(job: &Job, name: String, owners: Vec<OwnerReference>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace().to_owned()),
        owner_references: Some(owners),
        ..ObjectMeta::default()
    }
}

/// The Workload of a Job.
fn workload(job: &Job, rules: Rules<'_>) -> Workload {
    let gang = GangSchedulingPolicy { min_count: rules.0.parallelism.unwrap_or(1) };
    let template = PodGroupTemplate {
        name: format!("{}-pgt-0", job.name()),
        scheduling_policy: PodGroupSchedulingPolicy {
            gang: Some(gang),
            ..PodGroupSchedulingPolicy::default()
        },
        ..PodGroupTemplate::default()
    };
    Workload {
        metadata: meta(job, workload_name(job), vec![controller_ref(job)]),
        spec: WorkloadSpec {
            controller_ref: Some(TypedLocalObjectReference {
                api_group: Some("batch".to_owned()),
                kind: "Job".to_owned(),
                name: job.name().to_owned(),
            }),
            pod_group_templates: vec![template],
        },
    }
}

/// A reference to an owner that is not the controller.
fn owner(kind: &str, meta: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: API.to_owned(),
        kind: kind.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// The PodGroup of a Workload's template.
fn group(job: &Job, workload: &Workload, template: &PodGroupTemplate) -> PodGroup {
    let owners = vec![controller_ref(job), owner("Workload", &workload.metadata)];
    let reference = WorkloadPodGroupTemplateReference {
        workload_name: workload.name().to_owned(),
        pod_group_template_name: template.name.clone(),
    };
    PodGroup {
        metadata: meta(job, group_name(workload.name(), &template.name), owners),
        spec: PodGroupSpec {
            pod_group_template_ref: Some(PodGroupTemplateReference { workload: Some(reference) }),
            scheduling_policy: template.scheduling_policy.clone(),
            ..PodGroupSpec::default()
        },
        status: None,
    }
}

/// Puts a Pod into a group.
pub(super) fn join(pod: &mut Pod, group: &PodGroup) {
    let spec = pod.spec.get_or_insert_default();
    spec.scheduling_group = Some(PodSchedulingGroup { pod_group_name: group.metadata.name.clone() });
    let owners = pod.metadata.owner_references.get_or_insert_default();
    owners.push(owner("PodGroup", &group.metadata));
}

impl Gangs {
    /// With the informers that they need.
    pub(super) fn new<K: Clone + Eq + std::hash::Hash + std::fmt::Display + Send + Sync + 'static>(
        host: &Host<K>,
    ) -> Self {
        let workloads: Informer<Workload> = host.informer();
        let groups: Informer<PodGroup> = host.informer();
        Self {
            workloads: workloads.index("job", |w| {
                job_of(w).map(|job| place(w.namespace(), job).into()).into_iter().collect()
            }),
            groups: groups.index("workload", |g| {
                workload_of(g).map(|name| place(g.namespace(), name).into()).into_iter().collect()
            }),
        }
    }

    /// Finds or makes the group of a Job; `None` if its Pods are scheduled one by one.
    pub(super) async fn of(
        &self,
        client: &Client,
        recorder: &Recorder,
        (job, rules): (&Job, Rules<'_>),
        pods: &[Arc<PodView>],
    ) -> Result<Option<Arc<PodGroup>>, Status> {
        if !is_candidate(rules) {
            return Ok(None);
        }
        let workload = match found(job, self.workloads.get(&place(job.namespace(), job.name()))) {
            Found::None if is_new(job, pods) => {
                let made = client.api::<Workload>(job.namespace()).create(&workload(job, rules)).await?;
                let text = format!("Created Workload {} for Job {}", made.name(), job.name());
                recorder.event(job, EventType::Normal, "WorkloadCreated", text);
                Arc::new(made)
            }
            // The cache may be behind the Pods that were made.
            Found::None => return joined(client, job, pods).await,
            Found::Own(workload) => workload,
            Found::Others => return Ok(None),
        };
        let [template] = workload.spec.pod_group_templates.as_slice() else { return Ok(None) };
        match found(job, self.groups.get(&place(job.namespace(), workload.name()))) {
            Found::None => {
                let group = group(job, &workload, template);
                client.api::<PodGroup>(job.namespace()).create(&group).await.map(|made| Some(Arc::new(made)))
            }
            Found::Own(group) => Ok(Some(group)),
            Found::Others => Ok(None),
        }
    }
}

/// The group that a Job's Pods are in already, if the Job has it.
async fn joined(client: &Client, job: &Job, pods: &[Arc<PodView>]) -> Result<Option<Arc<PodGroup>>, Status> {
    let Some(name) = pods.iter().map(|pod| pod.group()).find(|name| !name.is_empty()) else {
        return Ok(None);
    };
    match client.api::<PodGroup>(job.namespace()).get(name).await {
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
        Ok(group) => match found(job, vec![Arc::new(group)]) {
            Found::Own(group) => Ok(Some(group)),
            Found::None | Found::Others => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::tests::view;

    fn job(spec: Value, status: Value) -> Job {
        let mut all = json!({"template": {"spec": {"containers": []}}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let meta = json!({"name": "test-job", "namespace": "n", "uid": "uid-123"});
        serde_json::from_value(json!({"metadata": meta, "spec": all, "status": status})).unwrap()
    }

    /// Upstream's cases of `TestShouldManageWorkloadForJob` and `TestIsGangSchedulingCandidate`.
    #[test]
    fn candidates() {
        let check = |spec: Value, want: bool| {
            let job = job(spec.clone(), json!({}));
            assert_eq!(is_candidate(Rules(job.spec.as_ref().unwrap())), want, "{spec}");
        };
        let of = |parallelism: Value, completions: Value, mode: Value| json!({"parallelism": parallelism, "completions": completions, "completionMode": mode});
        check(of(json!(4), json!(4), json!("Indexed")), true);
        check(of(json!(2), json!(2), json!("Indexed")), true);
        check(of(json!(0), json!(0), json!("Indexed")), false);
        check(of(Value::Null, json!(4), json!("Indexed")), false);
        check(of(json!(1), json!(1), json!("Indexed")), false);
        check(of(json!(4), json!(4), json!("NonIndexed")), false);
        check(of(json!(4), Value::Null, json!("Indexed")), false);
        check(of(json!(4), json!(8), json!("Indexed")), false);
        check(of(json!(4), json!(4), Value::Null), false);
        let mut grouped = of(json!(4), json!(4), json!("Indexed"));
        grouped["template"] = json!({"spec": {"containers": [], "schedulingGroup": {"podGroupName": "g"}}});
        check(grouped, false);
    }

    /// The Jobs of upstream's `TestEnsureWorkloadAndPodGroup` that get no Workload, and one that does.
    #[test]
    fn new_ones() {
        let check = |status: Value, pods: usize, want: bool| {
            let pod = Arc::new(view(&json!({"metadata": {}})));
            let pods: Vec<_> = std::iter::repeat_n(pod, pods).collect();
            assert_eq!(is_new(&job(json!({}), status.clone()), &pods), want, "{status}");
        };
        check(Value::Null, 0, true);
        check(json!({}), 0, true);
        check(json!({}), 1, false);
        check(json!({"startTime": "2026-01-01T00:00:00Z"}), 0, false);
        check(json!({"succeeded": 1}), 0, false);
        check(json!({"failed": 1}), 0, false);
        check(json!({"conditions": [{"type": "Suspended", "status": "True"}]}), 0, false);
    }

    /// The Workloads and PodGroups of upstream's `TestEnsureWorkloadAndPodGroup`.
    #[test]
    fn belongings() {
        let job = job(json!({"parallelism": 4}), json!({}));
        let own = Arc::new(workload(&job, Rules(job.spec.as_ref().unwrap())));
        let mut other = Workload::clone(&own);
        other.metadata.owner_references = None;
        assert_eq!(found::<Workload>(&job, vec![]), Found::None);
        assert_eq!(found(&job, vec![own.clone()]), Found::Own(own.clone()));
        assert_eq!(found(&job, vec![Arc::new(other)]), Found::Others);
        assert_eq!(found(&job, vec![own.clone(), own.clone()]), Found::Others);
        assert_eq!(job_of(&own), Some("test-job"));
        let group = group(&job, &own, &own.spec.pod_group_templates[0]);
        assert_eq!(workload_of(&group), Some(own.name()));
        assert_eq!(group.spec.scheduling_policy.gang.as_ref().map(|g| g.min_count), Some(4));
        assert_eq!(own.spec.pod_group_templates[0].name, "test-job-pgt-0");
        let owners = group.metadata.owner_references.as_deref().unwrap();
        let owners: Vec<_> = owners.iter().map(|o| (o.kind.as_str(), o.controller)).collect();
        assert_eq!(owners, [("Job", Some(true)), ("Workload", None)]);
    }

    /// Upstream's cases of `TestComputeWorkloadName` and `TestComputePodGroupName`.
    #[test]
    fn names() {
        let mut job = job(json!({}), json!({}));
        let name = workload_name(&job);
        assert!(name.starts_with("test-job-") && name.len() <= "test-job-".len() + 10, "{name}");
        job.metadata.uid = Some("different-uid".to_owned());
        assert_ne!(workload_name(&job), name);
        job.metadata.name = Some("a".repeat(300));
        assert_eq!(workload_name(&job).len(), LONGEST);
        let check = |workload: usize, template: usize, want: [usize; 2]| {
            let name = group_name(&"w".repeat(workload), &"t".repeat(template));
            let parts: Vec<usize> = name.splitn(3, '-').map(str::len).collect();
            assert!(name.len() <= LONGEST, "{name}");
            let room = LONGEST - 2 - parts[2];
            let of = |n: usize, other: usize| if n == 0 { room - other } else { n };
            assert_eq!(parts[..2], [of(want[0], want[1]), of(want[1], want[0])], "{name}");
        };
        check(11, 11, [11, 11]);
        check(250, 3, [0, 3]);
        check(2, 250, [2, 0]);
        let name = group_name(&"w".repeat(200), &"t".repeat(200));
        assert!(name.len() == LONGEST && name.contains("www-ttt"), "{name}");
        assert_ne!(group_name("w", "t"), group_name("w", "other"));
    }

    fn gang(name: &str, size: i32) -> Job {
        let spec = json!({"parallelism": size, "completions": size, "completionMode": "Indexed"});
        let mut job = job(spec, json!({}));
        job.metadata.name = Some(name.to_owned());
        job
    }

    /// Upstream's cases of `TestBuildPodGroupTemplates` and `TestCreateWorkloadForJob`.
    #[test]
    fn workloads() {
        let check = |name: &str, size: i32| {
            let job = gang(name, size);
            let made = workload(&job, Rules(job.spec.as_ref().unwrap()));
            assert_eq!((made.name(), made.namespace()), (workload_name(&job).as_str(), "n"));
            let reference = json!({"apiGroup": "batch", "kind": "Job", "name": name});
            assert_eq!(json!(made.spec.controller_ref), reference);
            let policy = json!({"gang": {"minCount": size}});
            let template = json!({"name": format!("{name}-pgt-0"), "schedulingPolicy": policy});
            assert_eq!(json!(made.spec.pod_group_templates), json!([template]));
            let owners = made.metadata.owner_references.as_deref().unwrap();
            assert_eq!((owners.len(), owners[0].name.as_str()), (1, name));
        };
        check("my-training-job", 8);
        check("small-job", 2);
        check("my-job", 8);
    }

    /// Upstream's case of `TestCreatePodGroupForWorkload`. A Workload without templates does not get that far.
    #[test]
    fn groups() {
        let job = gang("my-job", 4);
        let mut made = workload(&job, Rules(job.spec.as_ref().unwrap()));
        made.metadata.name = Some("my-workload".to_owned());
        made.metadata.uid = Some("wl-uid".to_owned());
        let group = group(&job, &made, &made.spec.pod_group_templates[0]);
        assert_eq!(group.name(), group_name("my-workload", "my-job-pgt-0"));
        let owners = group.metadata.owner_references.as_deref().unwrap();
        let owners: Vec<_> = owners.iter().map(|o| (o.kind.as_str(), o.uid.as_str())).collect();
        assert_eq!(owners, [("Job", "uid-123"), ("Workload", "wl-uid")]);
    }

    /// Upstream's cases of `TestSyncJobPodSchedulingGroup` in which Pods are made: the group that a Pod names, and whether
    /// the group owns it.
    #[test]
    fn groups_of_pods() {
        let check = |job: &Job, want: (Option<&str>, bool)| {
            let rules = Rules(job.spec.as_ref().unwrap());
            let mut pod = super::super::pods::common(job, rules).unwrap();
            if is_candidate(rules) {
                let made = workload(job, rules);
                join(&mut pod, &group(job, &made, &made.spec.pod_group_templates[0]));
            }
            let owners = pod.metadata.owner_references.unwrap_or_default();
            let named = pod.spec.unwrap().scheduling_group.and_then(|g| g.pod_group_name);
            assert_eq!((named.as_deref(), owners.iter().any(|o| o.kind == "PodGroup")), want);
        };
        let labelled = |mut job: Job| {
            let meta = json!({"labels": {"foo": "bar"}});
            job.spec.as_mut().unwrap().template.metadata = serde_json::from_value(meta).unwrap();
            job
        };
        let eligible = labelled(gang("test-job", 4));
        let name = group_name(&workload_name(&eligible), "test-job-pgt-0");
        check(&eligible, (Some(&name), true));
        check(&labelled(job(json!({"parallelism": 2, "completions": 5}), json!({}))), (None, false));
        let mut own = labelled(gang("opt-out-job", 4));
        let template = own.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
        template.scheduling_group =
            Some(PodSchedulingGroup { pod_group_name: Some("external-pg".to_owned()) });
        check(&own, (Some("external-pg"), false));
    }

    #[test]
    fn members() {
        let mut pod = Pod::default();
        let group: PodGroup = serde_json::from_value(json!({"metadata": {"name": "g", "uid": "u"},
            "spec": {"schedulingPolicy": {"basic": {}}}}))
        .unwrap();
        join(&mut pod, &group);
        assert_eq!(json!(pod.spec.unwrap().scheduling_group), json!({"podGroupName": "g"}));
        let want = json!([{"apiVersion": API, "kind": "PodGroup", "name": "g", "uid": "u"}]);
        assert_eq!(json!(pod.metadata.owner_references), want);
    }
}
