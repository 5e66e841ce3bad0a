//! The filters of CRI's lists; pure.

use std::collections::HashMap;

use cri::runtime as pb;

fn has(labels: &HashMap<String, String>, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn begins(id: &str, with: &str) -> bool {
    with.is_empty() || id.starts_with(with)
}

/// Whether a list shows a sandbox.
pub(crate) fn sandbox(
    id: &str,
    state: pb::PodSandboxState,
    labels: &HashMap<String, String>,
    filter: Option<&pb::PodSandboxFilter>,
) -> bool {
    filter.is_none_or(|filter| {
        begins(id, &filter.id)
            && filter.state.as_ref().is_none_or(|wanted| wanted.state == i32::from(state))
            && has(labels, &filter.label_selector)
    })
}

/// Whether a list shows a container.
pub(crate) fn container(
    (id, sandbox): (&str, &str),
    state: pb::ContainerState,
    labels: &HashMap<String, String>,
    filter: Option<&pb::ContainerFilter>,
) -> bool {
    filter.is_none_or(|filter| {
        begins(id, &filter.id)
            && begins(sandbox, &filter.pod_sandbox_id)
            && filter.state.as_ref().is_none_or(|wanted| wanted.state == i32::from(state))
            && has(labels, &filter.label_selector)
    })
}

/// Whether the statistics of a container are asked for.
pub(crate) fn container_stats(
    (id, sandbox): (&str, &str),
    labels: &HashMap<String, String>,
    filter: Option<&pb::ContainerStatsFilter>,
) -> bool {
    filter.is_none_or(|filter| {
        begins(id, &filter.id)
            && begins(sandbox, &filter.pod_sandbox_id)
            && has(labels, &filter.label_selector)
    })
}

/// Whether the statistics of a sandbox are asked for.
pub(crate) fn sandbox_stats(
    id: &str,
    labels: &HashMap<String, String>,
    filter: Option<&pb::PodSandboxStatsFilter>,
) -> bool {
    filter.is_none_or(|filter| begins(id, &filter.id) && has(labels, &filter.label_selector))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> HashMap<String, String> {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn containers() {
        let labels_of = labels(&[("a", "1"), ("b", "2")]);
        let shows = |filter: Option<&pb::ContainerFilter>| {
            container(("abc", "pod1"), pb::ContainerState::ContainerRunning, &labels_of, filter)
        };
        let check = |filter: pb::ContainerFilter, expected: bool| {
            assert_eq!(shows(Some(&filter)), expected, "{filter:?}");
        };
        let none = pb::ContainerFilter::default();
        check(none.clone(), true);
        check(pb::ContainerFilter { id: "ab".into(), ..none.clone() }, true);
        check(pb::ContainerFilter { id: "b".into(), ..none.clone() }, false);
        check(pb::ContainerFilter { pod_sandbox_id: "pod1".into(), ..none.clone() }, true);
        check(pb::ContainerFilter { pod_sandbox_id: "pod2".into(), ..none.clone() }, false);
        let state = |state| Some(pb::ContainerStateValue { state });
        check(pb::ContainerFilter { state: state(1), ..none.clone() }, true);
        check(pb::ContainerFilter { state: state(2), ..none.clone() }, false);
        check(pb::ContainerFilter { label_selector: labels(&[("a", "1")]), ..none.clone() }, true);
        check(pb::ContainerFilter { label_selector: labels(&[("a", "2")]), ..none.clone() }, false);
        check(pb::ContainerFilter { label_selector: labels(&[("c", "")]), ..none }, false);
        assert!(shows(None));
    }
}
