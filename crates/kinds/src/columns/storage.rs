//! The kinds of storage and devices.

use serde_json::Value;

use super::{AGE, Columns, Definition, Maker, NAME, default_name, flag, number, or, shown, text};

pub(crate) const CSI_DRIVER: &Columns = &shown!(
    [
        NAME,
        flag("AttachRequired"),
        flag("PodInfoOnMount"),
        flag("StorageCapacity"),
        text("TokenRequests"),
        flag("RequiresRepublish"),
        text("Modes"),
        AGE,
    ],
    |m| {
        let tokens = m
            .spec
            .has("tokenRequests")
            .then(|| m.spec.items("tokenRequests").map(|t| t.str("audience")).collect::<Vec<_>>().join(","));
        let modes = m.spec.strs("volumeLifecycleModes").collect::<Vec<_>>().join(",");
        [
            m.name(),
            m.spec.opt_bool("attachRequired").unwrap_or(true).into(),
            m.spec.bool("podInfoOnMount").into(),
            m.spec.bool("storageCapacity").into(),
            tokens.unwrap_or_else(|| "<unset>".into()).into(),
            m.spec.bool("requiresRepublish").into(),
            or(&modes, "<none>").into(),
            m.age(),
        ]
    }
);

pub(crate) const CSI_NODE: &Columns =
    &shown!([NAME, number("Drivers"), AGE], |m| [m.name(), m.spec.len("drivers").into(), m.age()]);

pub(crate) const STORAGE_CLASS: &Columns = &shown!(
    [
        NAME,
        text("Provisioner"),
        text("ReclaimPolicy"),
        text("VolumeBindingMode"),
        text("AllowVolumeExpansion"),
        AGE,
    ],
    |m| [
        default_name(&m, "storageclass.kubernetes.io/is-default-class"),
        m.object.str("provisioner").into(),
        m.object.opt_str("reclaimPolicy").unwrap_or("Delete").into(),
        m.object.opt_str("volumeBindingMode").unwrap_or("Immediate").into(),
        m.object.bool("allowVolumeExpansion").into(),
        m.age(),
    ]
);

pub(crate) const VOLUME_ATTACHMENT: &Columns = &shown!(
    [
        NAME,
        Definition { format: "name", ..text("Attacher") },
        text("PV"),
        text("Node"),
        flag("Attached"),
        AGE,
    ],
    |m| [
        m.name(),
        m.spec.str("attacher").into(),
        m.spec.st("source").str("persistentVolumeName").into(),
        m.spec.str("nodeName").into(),
        m.status.bool("attached").into(),
        m.age(),
    ]
);

pub(crate) const VOLUME_ATTRIBUTES_CLASS: &Columns = &shown!([NAME, text("DriverName"), AGE], |m| {
    [
        default_name(&m, "storageclass.kubernetes.io/is-default-class"),
        m.object.str("driverName").into(),
        m.age(),
    ]
});

pub(crate) const DEVICE_TAINT_RULE: &Columns =
    &shown!([NAME, text("Key"), text("Value"), text("Effect"), text("TimeAdded"), AGE], |m| {
        let taint = m.spec.st("taint");
        let since = taint.opt_str("timeAdded").map_or_else(String::new, |t| m.since(t));
        let field = |name: &str| Value::from(taint.str(name));
        [m.name(), field("key"), field("value"), field("effect"), since.into(), m.age()]
    });

pub(crate) const RESOURCE_POOL_STATUS_REQUEST: &Columns = &shown!(
    [
        NAME,
        text("Driver"),
        text("Total"),
        text("Available"),
        text("Allocated"),
        text("Unavailable"),
        text("Errors"),
        number("Pools"),
        text("Status"),
        text("Completed"),
    ],
    |m| pool_status(&m)
);

pub(crate) const DEVICE_CLASS: &Columns = &shown!([NAME, AGE], |m| [m.name(), m.age()]);

pub(crate) const RESOURCE_CLAIM_TEMPLATE: &Columns = DEVICE_CLASS;

pub(crate) const RESOURCE_CLAIM: &Columns = &shown!([NAME, text("State"), AGE], |m| {
    let going = m.meta.has("deletionTimestamp");
    let mut states = Vec::from_iter(going.then_some("deleted"));
    if m.status.has("allocation") {
        states.push("allocated");
        if m.status.len("reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !going {
        states.push("pending");
    }
    [m.name(), states.join(",").into(), m.age()]
});

pub(crate) const RESOURCE_SLICE: &Columns =
    &shown!([NAME, text("Node"), text("Driver"), text("Pool"), AGE], |m| [
        m.name(),
        m.spec.str("nodeName").into(),
        m.spec.str("driver").into(),
        m.spec.st("pool").str("name").into(),
        m.age(),
    ]);

/// The cells of a ResourcePoolStatusRequest: sums over its pools, unless it failed.
fn pool_status(m: &Maker<'_>) -> [Value; 10] {
    let done = m
        .status
        .items("conditions")
        .find(|c| matches!(c.str("type"), "Complete" | "Failed") && c.str("status") == "True");
    let failed = done.is_some_and(|c| c.str("type") == "Failed");
    let count = m.status.int("poolCount");
    let shown = m.status.len("pools");
    let state = match done.map(|c| c.str("type")) {
        Some("Complete") if count > shown as i64 => format!("Complete ({shown}/{count} pools)"),
        Some(state) => state.to_owned(),
        None => "Pending".to_owned(),
    };
    let sum = |field: &str| -> Value {
        if failed || m.status.raw().is_none() {
            return "-".into();
        }
        m.status.items("pools").map(|p| p.int(field)).sum::<i64>().to_string().into()
    };
    let errors: Value = if failed || m.status.raw().is_none() {
        "-".into()
    } else {
        m.status.items("pools").filter(|p| p.has("validationError")).count().to_string().into()
    };
    let completed = done.filter(|_| !failed).map(|c| m.since(c.str("lastTransitionTime")));
    [
        m.name(),
        m.spec.str("driver").into(),
        sum("totalDevices"),
        sum("availableDevices"),
        sum("allocatedDevices"),
        sum("unavailableDevices"),
        errors,
        count.into(),
        state.into(),
        completed.unwrap_or_else(|| "<none>".into()).into(),
    ]
}
