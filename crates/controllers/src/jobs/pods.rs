//! The Pods of a Job: how they are made.

use api::Status;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use super::plan::New;
use super::rules::Rules;
use crate::common::pod_control::from_template;
use crate::views::TRACKING;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The environment variable of a container that has its index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The greatest length of the part of a name before its random end.
const PREFIX: usize = 58;

/// Makes what the Pods of a Job have in common.
///
/// # Errors
/// The template has no labels.
pub(super) fn common(job: &Job, rules: Rules<'_>) -> Result<Pod, Status> {
    let mut pod = from_template(job, Some(&rules.0.template))?;
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|f| f == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    if let (true, Some(spec)) = (rules.is_indexed(), &mut pod.spec) {
        spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(give_index);
    }
    Ok(pod)
}

fn give_index(container: &mut Container) {
    let all = container.env.get_or_insert_default();
    if all.iter().any(|v| v.name == VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector { api_version: None, field_path: format!("metadata.labels['{INDEX}']") };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    all.push(EnvVar { name: VARIABLE.to_owned(), value: None, value_from: Some(source) });
}

/// Makes one Pod.
pub(super) fn one(job: &Job, common: &Pod, new: &New) -> Pod {
    let mut pod = common.clone();
    let Some(index) = new.index else { return pod };
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if let Some((failures, ignored)) = new.failures {
        annotations.insert(FAILURES.to_owned(), failures.to_string());
        if ignored > 0 {
            annotations.insert(IGNORED.to_owned(), ignored.to_string());
        }
    }
    pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    pod.metadata.generate_name = Some(prefix(name, index));
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
    }
    pod
}

/// The part of the name of an index's Pod before its random end.
fn prefix(job: &str, index: i64) -> String {
    let end = format!("-{index}-");
    let room = PREFIX.saturating_sub(end.len());
    let kept: String = job.chars().take(room).collect();
    format!("{kept}{end}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made(more: Value, new: &New) -> Pod {
        let mut spec = json!({"template": {
            "metadata": {"labels": {"a": "b"}, "finalizers": ["mine"]},
            "spec": {"containers": [{"name": "c"}, {"name": "d", "env": [{"name": VARIABLE, "value": "x"}]}],
                "initContainers": [{"name": "i"}]},
        }});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let meta = json!({"name": "j", "namespace": "n", "uid": "u"});
        let job: Job = serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap();
        let rules = Rules(job.spec.as_ref().unwrap());
        one(&job, &common(&job, rules).unwrap(), new)
    }

    #[test]
    fn what_a_pod_has() {
        let pod = made(json!({}), &New { index: None, failures: None });
        assert_eq!(pod.metadata.finalizers.as_deref(), Some(&["mine".to_owned(), TRACKING.to_owned()][..]));
        assert_eq!((pod.metadata.generate_name.as_deref(), pod.metadata.annotations), (Some("j-"), None));
        assert_eq!(pod.spec.unwrap().containers[0].env, None);

        let pod = made(json!({"completionMode": "Indexed"}), &New { index: Some(3), failures: Some((2, 0)) });
        let said = |all: &Option<std::collections::BTreeMap<String, String>>, key: &str| {
            all.as_ref().and_then(|a| a.get(key).cloned())
        };
        let annotations = &pod.metadata.annotations;
        assert_eq!(
            (said(annotations, INDEX), said(annotations, FAILURES)),
            (Some("3".into()), Some("2".into()))
        );
        assert_eq!((said(annotations, IGNORED), said(&pod.metadata.labels, INDEX)), (None, Some("3".into())));
        assert_eq!(pod.metadata.generate_name.as_deref(), Some("j-3-"));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("j-3"));
        let field = json!([{"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX}']")}}}]);
        assert_eq!(json!(spec.containers[0].env), field);
        assert_eq!(json!(spec.init_containers.unwrap()[0].env), field);
        assert_eq!(json!(spec.containers[1].env), json!([{"name": VARIABLE, "value": "x"}]));
    }

    /// Upstream's cases of `TestPodGenerateNameWithIndex`.
    #[test]
    fn names() {
        let check = |job: &str, index: i64, want: &str| assert_eq!(prefix(job, index), want);
        check("indexed-job", 1, "indexed-job-1-");
        let long = "hhhhhooooo".repeat(7);
        check(&long, 1, &format!("{}-1-", &long[..55]));
        check(&long[..57], 1, &format!("{}-1-", &long[..55]));
        check(&long, 12345, &format!("{}-12345-", &long[..51]));
    }
}
