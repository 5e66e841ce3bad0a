//! The taints of devices (upstream's `dynamic-resource-allocation/resourceclaim` and `resourceslice/tracker`).

use k8s_openapi::api::resource::v1::{Device, DeviceTaint, DeviceToleration, ResourceSlice};
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;

/// Whether a toleration tolerates a taint. Effects that are not known have to be passed over before.
pub fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    fn text(t: Option<&String>) -> &str {
        t.map(String::as_str).unwrap_or_default()
    }
    let is = |said: Option<&String>, wanted: &str| text(said).is_empty() || text(said) == wanted;
    if !is(toleration.effect.as_ref(), &taint.effect) || !is(toleration.key.as_ref(), &taint.key) {
        return false;
    }
    match text(toleration.operator.as_ref()) {
        "" | "Equal" => text(toleration.value.as_ref()) == text(taint.value.as_ref()),
        "Exists" => true,
        _ => false,
    }
}

/// Whether a taint keeps those from a device that tolerate no more than this.
pub fn is_kept_from(device: &Device, tolerations: &[DeviceToleration]) -> bool {
    let known = |taint: &&DeviceTaint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let mut taints = device.taints.iter().flatten().filter(known);
    taints.any(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

/// Whether a rule taints a device.
pub fn selects(rule: &DeviceTaintRule, driver: &str, pool: &str, device: &str) -> bool {
    let is = |said: Option<&String>, name: &str| said.is_none_or(|said| said == name);
    rule.spec.device_selector.as_ref().is_none_or(|selector| {
        is(selector.driver.as_ref(), driver)
            && is(selector.pool.as_ref(), pool)
            && is(selector.device.as_ref(), device)
    })
}

/// The taint of a rule.
pub fn taint_of(rule: &DeviceTaintRule) -> DeviceTaint {
    let taint = &rule.spec.taint;
    DeviceTaint {
        effect: taint.effect.clone(),
        key: taint.key.clone(),
        time_added: taint.time_added.clone(),
        value: taint.value.clone(),
    }
}

/// A slice with the taints of rules behind its own; `None` if no rule taints one of its devices.
pub fn tainted<'r>(
    slice: &ResourceSlice,
    rules: impl Iterator<Item = &'r DeviceTaintRule>,
) -> Option<ResourceSlice> {
    let mut tainted: Option<ResourceSlice> = None;
    for rule in rules {
        for (i, device) in slice.spec.devices.iter().flatten().enumerate() {
            if !selects(rule, &slice.spec.driver, &slice.spec.pool.name, &device.name) {
                continue;
            }
            let changed = tainted.get_or_insert_with(|| slice.clone());
            if let Some(device) = changed.spec.devices.as_mut().and_then(|d| d.get_mut(i)) {
                device.taints.get_or_insert_default().push(taint_of(rule));
            }
        }
    }
    tainted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of upstream's `TestTolerationToleratesTaint` of devices.
    #[test]
    fn tolerations() {
        let check = |toleration: [&str; 4], taint: [&str; 3], expected: bool| {
            let some = |t: &str| (!t.is_empty()).then(|| t.to_owned());
            let [key, operator, value, effect] = toleration.map(some);
            let toleration = DeviceToleration { key, operator, value, effect, toleration_seconds: None };
            let [key, value, effect] = taint.map(some);
            let taint = DeviceTaint {
                key: key.unwrap_or_default(),
                effect: effect.unwrap_or_default(),
                value,
                time_added: None,
            };
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?} {taint:?}");
        };
        let no = "NoSchedule";
        check(["foo", "Exists", "", no], ["foo", "bar", no], true);
        check(["foo", "Exists", "", ""], ["foo", "bar", no], true);
        check(["", "Exists", "", no], ["foo", "bar", no], true);
        check(["foo", "", "bar", no], ["foo", "bar", no], true);
        check(["foo", "Equal", "bar", no], ["foo", "bar", no], true);
        check(["foo", "Equal", "value", no], ["foo", "bar", no], false);
        check(["foo", "Equal", "bar", "NoExecute"], ["foo", "bar", no], false);
        check(["other", "Exists", "", ""], ["foo", "bar", no], false);
        check(["foo", "Other", "bar", no], ["foo", "bar", no], false);
    }
}
