//! Workloads and the kinds that scale, protect and schedule them.

use api::view::View;
use serde_json::Value;

use super::{
    AGE, Columns, Definition, Maker, NAME, containers, flag, human_duration, labels, number, or,
    requirements, selector, shown, text, wide,
};

pub(crate) const CONTROLLER_REVISION: &Columns =
    &shown!([NAME, text("Controller"), text("Revision"), AGE], |m| {
        let owner = m.meta.items("ownerReferences").find(|o| o.bool("controller")).map(|o| {
            let group = o.str("apiVersion").split_once('/').map_or("", |g| g.0);
            let kind = o.str("kind").to_lowercase();
            match (kind.as_str(), group) {
                ("", _) => o.str("name").to_owned(),
                (_, "") => format!("{kind}/{}", o.str("name")),
                (_, group) => format!("{kind}.{group}/{}", o.str("name")),
            }
        });
        let revision = m.object.int("revision");
        [m.name(), owner.unwrap_or_else(|| "<none>".into()).into(), revision.into(), m.age()]
    });

pub(crate) const DAEMON_SET: &Columns = &shown!(
    [
        NAME,
        number("Desired"),
        number("Current"),
        number("Ready"),
        number("Up-to-date"),
        number("Available"),
        text("Node Selector"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    |m| {
        let template = m.spec.st("template").st("spec");
        let [names, images] = containers(template);
        let count = |name: &str| Value::from(m.status.int(name));
        [
            m.name(),
            count("desiredNumberScheduled"),
            count("currentNumberScheduled"),
            count("numberReady"),
            count("updatedNumberScheduled"),
            count("numberAvailable"),
            labels(template.texts("nodeSelector")).into(),
            m.age(),
            names,
            images,
            selector(m.spec.opt("selector")).into(),
        ]
    }
);

pub(crate) const DEPLOYMENT: &Columns = &shown!(
    [
        NAME,
        text("Ready"),
        text("Up-to-date"),
        text("Available"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    |m| {
        let [names, images] = containers(m.spec.st("template").st("spec"));
        [
            m.name(),
            format!("{}/{}", m.status.int("readyReplicas"), replicas_of(&m)).into(),
            m.status.int("updatedReplicas").into(),
            m.status.int("availableReplicas").into(),
            m.age(),
            names,
            images,
            requirements(m.spec.st("selector")).unwrap_or_else(|| "<invalid>".into()).into(),
        ]
    }
);

pub(crate) const REPLICA_SET: &Columns = &shown!(
    [
        NAME,
        number("Desired"),
        number("Current"),
        number("Ready"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    |m| {
        let [names, images] = containers(m.spec.st("template").st("spec"));
        [
            m.name(),
            replicas_of(&m).into(),
            m.status.int("replicas").into(),
            m.status.int("readyReplicas").into(),
            m.age(),
            names,
            images,
            selector(m.spec.opt("selector")).into(),
        ]
    }
);

pub(crate) const STATEFUL_SET: &Columns =
    &shown!([NAME, text("Ready"), AGE, wide("Containers"), wide("Images")], |m| {
        let [names, images] = containers(m.spec.st("template").st("spec"));
        let ready = format!("{}/{}", m.status.int("readyReplicas"), replicas_of(&m));
        [m.name(), ready.into(), m.age(), names, images]
    });

pub(crate) const CRON_JOB: &Columns = &shown!(
    [
        NAME,
        text("Schedule"),
        text("Timezone"),
        flag("Suspend"),
        number("Active"),
        text("Last Schedule"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    |m| {
        let job = m.spec.st("jobTemplate").st("spec");
        let [names, images] = containers(job.st("template").st("spec"));
        let suspend = m.spec.opt_bool("suspend").map_or("<unset>", |s| if s { "True" } else { "False" });
        [
            m.name(),
            m.spec.str("schedule").into(),
            m.spec.opt_str("timeZone").unwrap_or("<none>").into(),
            suspend.into(),
            m.status.len("active").into(),
            m.status.opt_str("lastScheduleTime").map_or_else(|| "<none>".into(), |t| m.since(t)).into(),
            m.age(),
            names,
            images,
            selector(job.opt("selector")).into(),
        ]
    }
);

pub(crate) const JOB: &Columns = &shown!(
    [
        NAME,
        text("Status"),
        text("Completions"),
        text("Duration"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    |m| {
        let [names, images] = containers(m.spec.st("template").st("spec"));
        [
            m.name(),
            job_state(&m).into(),
            completions(&m).into(),
            job_duration(&m).into(),
            m.age(),
            names,
            images,
            selector(m.spec.opt("selector")).into(),
        ]
    }
);

pub(crate) const HORIZONTAL_POD_AUTOSCALER: &Columns = &shown!(
    [NAME, text("Reference"), text("Targets"), text("MinPods"), text("MaxPods"), text("Replicas"), AGE,],
    |m| {
        let target = m.spec.st("scaleTargetRef");
        let min = m.spec.opt_int("minReplicas").map_or_else(|| "<unset>".to_owned(), |n| n.to_string());
        [
            m.name(),
            format!("{}/{}", target.str("kind"), target.str("name")).into(),
            metrics(&m).into(),
            min.into(),
            m.spec.int("maxReplicas").into(),
            m.status.int("currentReplicas").into(),
            m.age(),
        ]
    }
);

pub(crate) const SCALE: &Columns = &shown!([NAME, number("Desired"), number("Available"), AGE], |m| {
    [m.name(), m.spec.int("replicas").into(), m.status.int("replicas").into(), m.age()]
});

pub(crate) const POD_DISRUPTION_BUDGET: &Columns = &shown!(
    [NAME, text("Min Available"), text("Max Unavailable"), number("Allowed Disruptions"), AGE],
    |m| {
        let of = |name: &str| match m.spec.get(name) {
            Some(api::Node::Int(i)) => i.to_string(),
            Some(other) => other.as_str().to_owned(),
            None => "N/A".into(),
        };
        [
            m.name(),
            of("minAvailable").into(),
            of("maxUnavailable").into(),
            m.status.int("disruptionsAllowed").into(),
            m.age(),
        ]
    }
);

pub(crate) const WORKLOAD: &Columns = &shown!([NAME, AGE], |m| [m.name(), m.age()]);

pub(crate) const POD_GROUP: &Columns =
    &shown!([NAME, text("Policy"), text("Workload"), text("Status"), AGE], |m| {
        let policy = if m.spec.st("schedulingPolicy").has("gang") { "Gang" } else { "Basic" };
        let workload = m.spec.opt("podGroupTemplateRef").map(|r| r.st("workload").str("workloadName"));
        [m.name(), policy.into(), workload.unwrap_or("<none>").into(), group_state(m.status).into(), m.age()]
    });

pub(crate) const PRIORITY_CLASS: &Columns =
    &shown!([NAME, number("Value"), flag("Global-Default"), AGE, wide_zero("PreemptionPolicy")], |m| [
        m.name(),
        m.object.int("value").into(),
        m.object.bool("globalDefault").into(),
        m.age(),
        m.object.str("preemptionPolicy").into(),
    ]);

/// A column that upstream fills for wide output but shows always.
const fn wide_zero(name: &'static str) -> Definition {
    text(name)
}

fn replicas_of(m: &Maker<'_>) -> i64 {
    m.spec.int("replicas")
}

fn job_state(m: &Maker<'_>) -> &'static str {
    let of = |kind: &str| m.status.items("conditions").find(|c| c.str("type") == kind);
    let is = |kind: &str| of(kind).is_some_and(|c| c.str("status") == "True");
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if m.meta.has("deletionTimestamp") => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(m: &Maker<'_>) -> String {
    let done = m.status.int("succeeded");
    match (m.spec.opt_int("completions"), m.spec.int("parallelism")) {
        (Some(all), _) => format!("{done}/{all}"),
        (None, n) if n > 1 => format!("{done}/1 of {n}"),
        (None, _) => format!("{done}/1"),
    }
}

fn job_duration(m: &Maker<'_>) -> String {
    let Some(start) = api::time::parse(m.status.str("startTime")) else { return String::new() };
    let end = api::time::parse(m.status.str("completionTime")).unwrap_or(m.now);
    human_duration(end.duration_since(start).as_secs())
}

/// A PodGroup's state.
fn group_state(status: View<'_>) -> &str {
    let of = |ty: &str| status.items("conditions").rfind(|c| c.str("type") == ty);
    match (of("DisruptionTarget"), of("PodGroupScheduled")) {
        (Some(c), _) => c.str("reason"),
        (None, Some(c)) if c.str("status") == "True" => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    }
}

/// The metrics of an autoscaler: current and target of the first two.
fn metrics(m: &Maker<'_>) -> String {
    let current: Vec<View<'_>> = m.status.items("currentMetrics").collect();
    let all: Vec<String> = m
        .spec
        .items("metrics")
        .enumerate()
        .map(|(i, spec)| {
            let field = match spec.str("type") {
                "External" => "external",
                "Pods" => "pods",
                "Object" => "object",
                "Resource" => "resource",
                "ContainerResource" => "containerResource",
                _ => return "<unknown type>".to_owned(),
            };
            let (source, target) = (spec.st(field), spec.st(field).st("target"));
            let now = current.get(i).and_then(|c| c.opt(field)).map(|c| c.st("current"));
            let unknown = || "<unknown>".to_owned();
            // Go's text of a quantity that is absent.
            let amount = |of: View<'_>, name: &str| of.opt_str(name).unwrap_or("<nil>").to_owned();
            let of = |name: &str| now.map_or_else(unknown, |n| amount(n, name));
            let known = |name: &str| now.and_then(|n| n.opt_str(name)).map_or_else(unknown, str::to_owned);
            let percent = |v: Option<i64>| v.map(|p| format!("{p}%"));
            match (field, target.opt_str("averageValue")) {
                ("resource" | "containerResource", want) => {
                    let (now, want) = match want {
                        Some(want) => (of("averageValue"), want.to_owned()),
                        None => (
                            percent(now.and_then(|n| n.opt_int("averageUtilization")))
                                .unwrap_or_else(unknown),
                            percent(target.opt_int("averageUtilization")).unwrap_or_else(|| "<auto>".into()),
                        ),
                    };
                    format!("{}: {now}/{want}", source.str("name"))
                }
                ("pods", _) => format!("{}/{}", of("averageValue"), amount(target, "averageValue")),
                (_, Some(want)) => format!("{}/{want} (avg)", known("averageValue")),
                (_, None) => format!("{}/{}", of("value"), amount(target, "value")),
            }
        })
        .collect();
    if all.len() > 2 {
        return format!("{} + {} more...", all[..2].join(", "), all.len() - 2);
    }
    or(&all.join(", "), "<none>").to_owned()
}
