//! The rules for writes to the status of a ResourceClaim: the allocation, its users, and the state of the devices that
//! drivers report.

use std::collections::HashSet;

use api::field::{Errors, Path, Raw};
use api::names;
use api::view::{Edit, View};
use api::{ByValue, Gate, Node, Struct};

use super::requests::{Requests, opaque, request_name, request_names};
use super::slice::{bindings, pool_name};
use super::{fits, unique};
use crate::strategies::generic::status_reset_meta;
use crate::strategies::meta::core_meta_update;
use crate::strategies::pod::scheduling::node_selector;
use crate::strategies::pod::volume_sources::csi_driver_name;
use crate::strategy::Ctx;
use crate::validation::{immutable, ip, meta};

/// Upstream's limits.
const MAX_RESERVED: usize = 256;
const MAX_RESULTS: usize = 32;
const MAX_CONFIG: usize = 64;
const MAX_CONDITIONS: usize = 8;
const MAX_DATA: usize = 10 * 1024;
const MAX_IPS: usize = 16;
const MAX_INTERFACE_NAME: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;

/// A device, or a share of one.
type Device<'a> = [&'a str; 4];

fn device(v: View<'_>) -> Device<'_> {
    ["driver", "pool", "device", "shareID"].map(|f| v.str(f))
}

fn results(status: View<'_>) -> impl Iterator<Item = View<'_>> {
    status.st("allocation").st("devices").items("results")
}

/// Restricts an update to the status; devices that are no longer allocated lose their state.
pub(super) fn prepare(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    status_reset_meta(c, new, old);
    let o = View::new(c.schema, old).st("status");
    if !c.gates.enabled(Gate::DRAResourceClaimDeviceStatus) && o.len("devices") == 0 {
        return;
    }
    let n = View::new(c.schema, new).st("status");
    let (had, has): (HashSet<Device<'_>>, HashSet<Device<'_>>) =
        (results(o).map(device).collect(), results(n).map(device).collect());
    let gone = |d: &Device<'_>| had.contains(d) && !has.contains(d);
    let kept: Vec<Node> = n.list("devices").iter().filter(|d| !gone(&device(n.of(d)))).cloned().collect();
    if kept.len() < n.len("devices")
        && let Some(mut status) = Edit::new(c.schema, new).at("status")
    {
        status.put("devices", Some(kept).filter(|k| !k.is_empty()).map(Node::List));
    }
}

/// Checks an update of the status.
pub(super) fn check(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    let at = Path::root("status");
    let (new, old) = (n.st("status"), o.st("status"));
    let reserved_at = at.field("reservedFor");
    if fits(errs, &reserved_at, new.len("reservedFor"), MAX_RESERVED) {
        for (i, r) in new.items("reservedFor").enumerate() {
            let at = reserved_at.index(i);
            for f in ["resource", "name", "uid"] {
                if r.str(f).is_empty() {
                    errs.required(&at.field(f), "");
                }
            }
        }
        unique(errs, &reserved_at, new.items("reservedFor").map(|r| r.str("uid")));
    }
    states(errs, &at.field("devices"), new);
    if new.len("reservedFor") > 0 {
        let added = || {
            let kept: HashSet<ByValue<&Node>> = old.list("reservedFor").iter().map(ByValue).collect();
            let kept = |r: &Node| kept.contains(&ByValue(r));
            !new.list("reservedFor").iter().all(kept)
        };
        if !new.has("allocation") {
            errs.forbidden(&reserved_at, "may not be specified when `allocated` is not set");
        } else if n.st("metadata").has("deletionTimestamp") && added() {
            errs.forbidden(
                &reserved_at,
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
            );
        }
    }
    match (new.opt("allocation"), old.opt("allocation")) {
        (Some(_), Some(_)) => immutable(errs, &at, new, old, "allocation"),
        (Some(a), None) => {
            allocation(errs, &at.field("allocation"), a, &Requests::of(n.st("spec").st("devices")));
        }
        (None, _) => {}
    }
}

/// Checks the states of allocated devices that drivers report.
fn states(errs: &mut Errors, at: &Path<'_>, status: View<'_>) {
    let mut seen: HashSet<Device<'_>> = HashSet::new();
    let allocated: HashSet<Device<'_>> = results(status).map(device).collect();
    let text = |d: &Device<'_>| {
        let [driver, pool, device, share] = d.map(|t| api::go::scalar_json(&Node::from(t)));
        Raw(format!(r#"{{"Driver":{driver},"Pool":{pool},"Device":{device},"ShareID":{share}}}"#))
    };
    for (i, s) in status.items("devices").enumerate() {
        let at = at.index(i);
        csi_driver_name(errs, &at.field("driver"), s.str("driver"));
        pool_name(errs, &at.field("pool"), s.str("pool"));
        errs.each(&at.field("device"), s.str("device"), names::dns1123_label(s.str("device")));
        share_id(errs, &at, s);
        let id = device(s);
        if !allocated.contains(&id) {
            errs.invalid(&at, text(&id), "must be an allocated device in the claim");
        }
        let conditions = at.field("conditions");
        if s.len("conditions") > MAX_CONDITIONS {
            errs.too_many(&conditions, s.len("conditions"), MAX_CONDITIONS);
        }
        meta::conditions(errs, &conditions, s, "conditions");
        data(errs, &at.field("data"), s.get("data"));
        network(errs, &at.field("networkData"), s.st("networkData"));
    }
    for (i, s) in status.items("devices").enumerate() {
        let id = device(s);
        if seen.contains(&id) {
            errs.duplicate(&at.index(i), text(&id));
        } else {
            seen.insert(id);
        }
    }
}

fn data(errs: &mut Errors, at: &Path<'_>, data: Option<&Node>) {
    match data {
        None => {}
        Some(Node::Null) => errs.required(at, ""),
        Some(d) if api::go::scalar_json(d).len() > MAX_DATA => errs.too_long(at, MAX_DATA),
        Some(Node::Raw(text)) if text.starts_with('{') => {}
        Some(_) => errs.invalid(at, "<value omitted>", "must be a valid JSON object"),
    }
}

fn network(errs: &mut Errors, at: &Path<'_>, network: View<'_>) {
    for (f, max) in [("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)] {
        if network.str(f).len() > max {
            errs.too_long(&at.field(f), max);
        }
    }
    let at = at.field("ips");
    if fits(errs, &at, network.len("ips"), MAX_IPS) {
        for (i, address) in network.strs("ips").enumerate() {
            ip::check_interface(errs, &at.index(i), address);
        }
        unique(errs, &at, network.strs("ips"));
    }
}

fn allocation(errs: &mut Errors, at: &Path<'_>, a: View<'_>, claimed: &Requests<'_>) {
    let devices_at = at.field("devices");
    let devices = a.st("devices");
    let results_at = devices_at.field("results");
    if fits(errs, &results_at, devices.len("results"), MAX_RESULTS) {
        for (i, r) in devices.items("results").enumerate() {
            let at = results_at.index(i);
            request_name(errs, &at.field("request"), r.str("request"), claimed);
            csi_driver_name(errs, &at.field("driver"), r.str("driver"));
            pool_name(errs, &at.field("pool"), r.str("pool"));
            errs.each(&at.field("device"), r.str("device"), names::dns1123_label(r.str("device")));
            bindings(errs, &at, r);
            share_id(errs, &at, r);
        }
    }
    let config_at = devices_at.field("config");
    if fits(errs, &config_at, devices.len("config"), MAX_CONFIG) {
        for (i, c) in devices.items("config").enumerate() {
            let at = config_at.index(i);
            match c.str("source") {
                "" => errs.required(&at.field("source"), ""),
                source => {
                    errs.one_of(&at.field("source"), source, &["FromClaim", "FromClass"]);
                }
            }
            request_names(errs, &at, c, claimed);
            opaque(errs, &at, c);
        }
    }
    if let Some(s) = a.opt("nodeSelector") {
        node_selector(errs, &at.field("nodeSelector"), s, false);
    }
}

fn share_id(errs: &mut Errors, at: &Path<'_>, of: View<'_>) {
    let Some(id) = of.opt_str("shareID") else { return };
    let at = at.field("shareID");
    if let Err(why) = uuid(id) {
        errs.invalid(&at, id, format!("error validating uid: {why}"));
    } else if id.len() != 36 || id.bytes().any(|b| b.is_ascii_uppercase()) {
        errs.invalid(
            &at,
            id,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters",
        );
    }
}

/// Checks that a text is a UUID, in any of the forms that github.com/google/uuid reads.
fn uuid(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let plain = match bytes.len() {
        36 => bytes,
        45 if !bytes[..9].eq_ignore_ascii_case(b"urn:uuid:") => {
            let prefix = String::from_utf8_lossy(&bytes[..9]).into_owned();
            return Err(format!("invalid urn prefix: {}", api::go::quote(&prefix)));
        }
        45 => &bytes[9..],
        38 if bytes[0] != b'{' || bytes[37] != b'}' => {
            return Err("invalid bracketed UUID format".into());
        }
        38 => &bytes[1..37],
        32 if bytes.iter().all(u8::is_ascii_hexdigit) => return Ok(()),
        32 => return Err("invalid UUID format".into()),
        n => return Err(format!("invalid UUID length: {n}")),
    };
    let good = plain.iter().enumerate().all(|(i, b)| match i {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    });
    if good { Ok(()) } else { Err("invalid UUID format".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        for (text, expected) in [
            ("123e4567-e89b-12d3-a456-426614174000", Ok(())),
            ("urn:uuid:123E4567-e89b-12d3-a456-426614174000", Ok(())),
            ("{123e4567-e89b-12d3-a456-426614174000}", Ok(())),
            ("123e4567e89b12d3a456426614174000", Ok(())),
            ("123e4567-e89b-12d3-a456_426614174000", Err("invalid UUID format")),
            ("a-b", Err("invalid UUID length: 3")),
            ("", Err("invalid UUID length: 0")),
        ] {
            assert_eq!(uuid(text), expected.map_err(String::from), "{text}");
        }
    }
}
