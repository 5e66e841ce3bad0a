//! DeviceTaintRules.

use api::field::{Errors, Path};
use api::names::{self, name_subdomain};
use api::view::{Edit, View, same};
use api::{Node, Struct};

use super::{EFFECTS, GROUP};
use crate::columns;
use crate::strategies::generic::{
    self, CLUSTER, bump_spec, check, check_update, keep_status, status_reset_meta,
};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::volume_sources::csi_driver_name;
use crate::strategies::rules::{Rules, SubresourceRules, Takes, going};
use crate::strategy::Ctx;
use crate::validation::meta;

const MAX_CONDITIONS: usize = 8;

pub(crate) const TAINT_RULE: Rules = Rules {
    group: GROUP,
    resource: "devicetaintrules",
    columns: columns::storage::DEVICE_TAINT_RULE,
    going: &[going("v1alpha3", 36, "1.39")],
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        generic::create(c, s);
        date(c, s, None);
    },
    prepare_update: |c, n, o| {
        keep_status(c, n, o);
        date(c, n, Some(o));
        bump_spec(c, n, o);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), false, name_subdomain);
            spec(e, v.st("spec"), None);
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            spec(e, n.st("spec"), Some(o.st("spec")));
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC_AND_METADATA,
        prepare_update: status_reset_meta,
        validate_update: |c, n, o| {
            check_update(c, n, o, |e, n, o| {
                core_meta_update(e, n.st("metadata"), o.st("metadata"));
                let at = Path::root("status.conditions");
                meta::conditions(e, &at, n.st("status"), "conditions");
                let count = n.st("status").len("conditions");
                if count > MAX_CONDITIONS {
                    e.too_many(&at, count, MAX_CONDITIONS);
                }
            })
        },
    }],
    ..CLUSTER
};

/// Sets the time since which a taint has its effect.
fn date(c: &Ctx<'_>, new: &mut Struct, old: Option<&Struct>) {
    let mut e = Edit::new(c.schema, new);
    let Some(mut spec) = e.make("spec") else { return };
    let Some(mut taint) = spec.make("taint") else { return };
    taint.default("timeAdded", c.now);
    let Some(old) = old else { return };
    let before = View::new(c.schema, old).st("spec").st("taint");
    let now = taint.view();
    let changed = now.str("effect") != before.str("effect");
    if changed && same(now.get("timeAdded"), before.get("timeAdded")) {
        taint.set("timeAdded", Node::from(c.now));
    }
}

fn spec(errs: &mut Errors, spec: View<'_>, old: Option<View<'_>>) {
    let at = Path::root("spec");
    let selector_at = at.field("deviceSelector");
    let selector = spec.st("deviceSelector");
    if let Some(driver) = selector.opt_str("driver") {
        csi_driver_name(errs, &selector_at.field("driver"), driver);
    }
    if let Some(pool) = selector.opt_str("pool") {
        super::slice::pool_name(errs, &selector_at.field("pool"), pool);
    }
    if let Some(device) = selector.opt_str("device") {
        errs.each(&selector_at.field("device"), device, names::dns1123_label(device));
    }
    let (at, taint) = (at.field("taint"), spec.st("taint"));
    meta::label_name(errs, &at.field("key"), taint.str("key"));
    let value = taint.str("value");
    errs.each(&at.field("value"), value, names::label_value(value));
    let effect = taint.str("effect");
    if old.is_none_or(|o| o.st("taint").str("effect") != effect) {
        if effect.is_empty() {
            errs.required(&at.field("effect"), "");
        } else {
            errs.one_of(&at.field("effect"), effect, EFFECTS);
        }
    }
}
