//! The kinds by which the cluster itself is run.

use api::view::View;
use serde_json::Value;

use super::{
    AGE, Columns, Definition, Maker, NAME, human_duration, labels, number, or, shown, some_of, text, wide,
};

pub(crate) const MUTATING_WEBHOOK_CONFIGURATION: &Columns =
    &shown!([NAME, number("Webhooks"), AGE], |m| [m.name(), m.object.len("webhooks").into(), m.age()]);

pub(crate) const VALIDATING_WEBHOOK_CONFIGURATION: &Columns = MUTATING_WEBHOOK_CONFIGURATION;

pub(crate) const VALIDATING_ADMISSION_POLICY: &Columns =
    &shown!([NAME, number("Validations"), text("ParamKind"), AGE], |m| {
        [m.name(), m.spec.len("validations").into(), param_kind(&m), m.age()]
    });

pub(crate) const MUTATING_ADMISSION_POLICY: &Columns =
    &shown!([NAME, number("Mutations"), text("ParamKind"), AGE], |m| {
        [m.name(), m.spec.len("mutations").into(), param_kind(&m), m.age()]
    });

pub(crate) const VALIDATING_ADMISSION_POLICY_BINDING: &Columns =
    &shown!([NAME, text("PolicyName"), text("ParamRef"), AGE], |m| {
        let param = m.spec.opt("paramRef").map_or_else(
            || "<unset>".to_owned(),
            |p| match (p.str("namespace"), p.str("name")) {
                (_, "") => p.opt("selector").map_or_else(|| "<unset>".into(), go_selector),
                ("", name) => format!("*/{name}"),
                (ns, name) => format!("{ns}/{name}"),
            },
        );
        [m.name(), m.spec.str("policyName").into(), param.into(), m.age()]
    });

pub(crate) const MUTATING_ADMISSION_POLICY_BINDING: &Columns = VALIDATING_ADMISSION_POLICY_BINDING;

pub(crate) const API_SERVICE: &Columns = &shown!([NAME, text("Service"), text("Available"), AGE], |m| {
    let service = m.spec.opt("service").map(|s| format!("{}/{}", s.str("namespace"), s.str("name")));
    let available = m.status.items("conditions").find(|c| c.str("type") == "Available").map_or_else(
        || "Unknown".to_owned(),
        |c| match c.str("status") {
            "True" => "True".to_owned(),
            other => format!("{other} ({})", c.str("reason")),
        },
    );
    [m.name(), service.unwrap_or_else(|| "Local".into()).into(), available.into(), m.age()]
});

pub(crate) const CERTIFICATE_SIGNING_REQUEST: &Columns = &shown!(
    [NAME, AGE, text("SignerName"), text("Requestor"), text("RequestedDuration"), text("Condition")],
    |m| [
        m.name(),
        m.age(),
        or(m.spec.str("signerName"), "<none>").into(),
        m.spec.str("username").into(),
        m.spec.opt_int("expirationSeconds").map_or_else(|| "<none>".into(), human_duration).into(),
        request_state(m.status).into(),
    ]
);

pub(crate) const CLUSTER_TRUST_BUNDLE: &Columns =
    &shown!([NAME, text("SignerName")], |m| [m.name(), or(m.spec.str("signerName"), "<none>").into()]);

pub(crate) const POD_CERTIFICATE_REQUEST: &Columns = &shown!(
    [
        NAME,
        text("PodName"),
        text("ServiceAccountName"),
        text("NodeName"),
        text("SignerName"),
        text("State"),
        text("UnverifiedUserAnnotations"),
    ],
    |m| {
        let mut last = m.status.items("conditions").map(|c| c.str("type"));
        let state = last.rfind(|t| matches!(*t, "Issued" | "Denied" | "Failed"));
        let spec = |field: &str| Value::from(m.spec.str(field));
        [
            m.name(),
            spec("podName"),
            spec("serviceAccountName"),
            spec("nodeName"),
            spec("signerName"),
            state.unwrap_or("Pending").into(),
            or(&labels(m.spec.texts("unverifiedUserAnnotations")), "<none>").into(),
        ]
    }
);

pub(crate) const LEASE_CANDIDATE: &Columns =
    &shown!([NAME, text("LeaseName"), text("BinaryVersion"), text("EmulationVersion"), AGE], |m| {
        let spec = |field: &str| Value::from(m.spec.str(field));
        [m.name(), spec("leaseName"), spec("binaryVersion"), spec("emulationVersion"), m.age()]
    });

pub(crate) const LEASE: &Columns =
    &shown!([NAME, text("Holder"), AGE], |m| [m.name(), m.spec.str("holderIdentity").into(), m.age()]);

pub(crate) const FLOW_SCHEMA: &Columns = &shown!(
    [
        NAME,
        text("PriorityLevel"),
        text("MatchingPrecedence"),
        text("DistinguisherMethod"),
        AGE,
        text("MissingPL")
    ],
    |m| {
        let dangling = m.status.items("conditions").find(|c| c.str("type") == "Dangling");
        [
            m.name(),
            m.spec.st("priorityLevelConfiguration").str("name").into(),
            m.spec.int("matchingPrecedence").into(),
            m.spec.opt("distinguisherMethod").map_or("<none>", |d| d.str("type")).into(),
            m.age(),
            dangling.map_or("?", |c| c.str("status")).into(),
        ]
    }
);

pub(crate) const PRIORITY_LEVEL_CONFIGURATION: &Columns = &shown!(
    [
        NAME,
        text("Type"),
        text("NominalConcurrencyShares"),
        text("Queues"),
        text("HandSize"),
        text("QueueLengthLimit"),
        AGE,
    ],
    |m| {
        let none = || Value::from("<none>");
        let limited = m.spec.opt("limited");
        let queuing = limited.and_then(|l| l.st("limitResponse").opt("queuing"));
        let queue = |name: &str| queuing.map_or_else(none, |q| q.int(name).into());
        [
            m.name(),
            m.spec.str("type").into(),
            limited.map_or_else(none, |l| l.int("nominalConcurrencyShares").into()),
            queue("queues"),
            queue("handSize"),
            queue("queueLengthLimit"),
            m.age(),
        ]
    }
);

pub(crate) const STORAGE_VERSION: &Columns =
    &shown!([NAME, text("CommonEncodingVersion"), text("StorageVersions"), AGE], |m| {
        let all: Vec<String> = m
            .status
            .items("storageVersions")
            .map(|v| format!("{}={}", v.str("apiServerID"), v.str("encodingVersion")))
            .collect();
        [
            m.name(),
            m.status.opt_str("commonEncodingVersion").unwrap_or("<unset>").into(),
            or(&some_of(&all, 3), "<unset>").into(),
            m.age(),
        ]
    });

pub(crate) const RUNTIME_CLASS: &Columns =
    &shown!([NAME, text("Handler"), AGE], |m| [m.name(), m.object.str("handler").into(), m.age()]);

pub(crate) const CLUSTER_ROLE_BINDING: &Columns =
    &shown!([NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")], |m| {
        let role = m.object.st("roleRef");
        let of = |kind: &str| {
            let all: Vec<String> = m
                .object
                .items("subjects")
                .filter(|s| s.str("kind") == kind)
                .map(|s| match kind {
                    "ServiceAccount" => format!("{}/{}", s.str("namespace"), s.str("name")),
                    _ => s.str("name").to_owned(),
                })
                .collect();
            Value::from(all.join(", "))
        };
        [
            m.name(),
            format!("{}/{}", role.str("kind"), role.str("name")).into(),
            m.age(),
            of("User"),
            of("Group"),
            of("ServiceAccount"),
        ]
    });

pub(crate) const ROLE_BINDING: &Columns = CLUSTER_ROLE_BINDING;

pub(crate) const STORAGE_VERSION_MIGRATION: &Columns =
    &shown!([Definition { format: "", ..NAME }, text("Resource"), text("Status")], |m| {
        let of = m.spec.st("resource");
        let resource = match of.str("group") {
            "" => of.str("resource").to_owned(),
            group => format!("{}.{group}", of.str("resource")),
        };
        let known = ["Running", "Failed", "Succeeded"];
        let state = m.status.items("conditions").filter(|c| c.str("status") == "True");
        let state = state.map(|c| c.str("type")).rfind(|t| known.contains(t));
        [m.name(), resource.into(), state.unwrap_or("Unknown").into()]
    });

/// A `LabelSelector` as Go's generated code prints it.
fn go_selector(s: View<'_>) -> String {
    let labels = s.texts("matchLabels").map(|(k, v)| format!("{k}: {v},")).collect::<Vec<_>>().concat();
    let expressions = s.items("matchExpressions").map(|e| {
        let values = e.strs("values").collect::<Vec<_>>().join(" ");
        let (key, operator) = (e.str("key"), e.str("operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let expressions = expressions.collect::<Vec<_>>().concat();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn param_kind(m: &Maker<'_>) -> Value {
    let kind = m.spec.opt("paramKind").map(|p| format!("{}/{}", p.str("apiVersion"), p.str("kind")));
    kind.unwrap_or_else(|| "<unset>".into()).into()
}

/// A certificate signing request's state.
fn request_state(status: View<'_>) -> String {
    let is = |kind: &str| status.items("conditions").any(|c| c.str("type") == kind);
    let mut state = match () {
        () if is("Denied") => "Denied",
        () if is("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if is("Failed") {
        state.push_str(",Failed");
    }
    if !status.str("certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}
