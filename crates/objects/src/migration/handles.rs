//! The names of volumes that plugins and drivers have, and what they say of zones and regions.

use std::collections::BTreeSet;

use api::go::quote;

use super::error::{MigrationError, Result};

/// The text for a part of a name that nobody told.
const OPEN: &str = "UNSPECIFIED";
/// The parts of a disk's name at Google.
const GCE_PARTS: usize = 6;

fn handle<T>(text: String) -> Result<T> {
    Err(MigrationError::Handle(text))
}

/// The id of a volume of Amazon's, which may be written as `aws://ZONE/ID`.
pub(super) fn ebs(id: &str) -> std::result::Result<String, String> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let invalid = |why: String| format!("Invalid disk name ({id}): parse {}: {why}", quote(id));
    if rest.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err(invalid("net/url: invalid control character in URL".to_owned()));
    }
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let path = unescaped(path).map_err(|escape| invalid(format!("invalid URL escape {}", quote(&escape))))?;
    let name = path.trim_matches('/');
    if name.starts_with("vol-") && !name.contains('/') {
        Ok(name.to_owned())
    } else {
        Err(format!("Invalid format for AWS volume ({id})"))
    }
}

/// A path of a URL without its escapes; the first one that is wrong is an error.
fn unescaped(path: &str) -> std::result::Result<String, String> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            out.push(*first);
            rest = after;
            continue;
        }
        let digit = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        match (digit(0), digit(1)) {
            (Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => return Err(String::from_utf8_lossy(&rest[..rest.len().min(3)]).into_owned()),
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Regions as Go prints a set of them.
fn printed(regions: &BTreeSet<String>) -> String {
    let all: Vec<String> = regions.iter().map(|r| format!("{r}:{{}}")).collect();
    format!("map[{}]", all.join(" "))
}

fn one(regions: &BTreeSet<String>) -> Result<String> {
    match (regions.len(), regions.first()) {
        (1, Some(region)) => Ok(region.clone()),
        _ => Err(MigrationError::Zones(format!(
            "multiple or no regions gotten from zones, got: {}",
            printed(regions)
        ))),
    }
}

fn some(zones: &[String]) -> Result<()> {
    let none = || MigrationError::Zones("no zones specified".to_owned());
    if zones.is_empty() { Err(none()) } else { Ok(()) }
}

/// The region of zones of Amazon's: `us-west-2a`, `us-gov-east-1a`, local zones as `us-west-2-lax-1a`, and those of
/// Wavelength as `us-east-1-wl1-bos-wlz-1`.
pub(super) fn aws_region(zones: &[String]) -> Result<String> {
    some(zones)?;
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let last = parts.last().copied().unwrap_or_default();
        let region = match parts.len() {
            3 | 4 if last.len() == 2 && last.is_char_boundary(1) => Some(zone[..zone.len() - 1].to_owned()),
            5 | 7 => Some(parts[..3].join("-")),
            _ => None,
        };
        let odd = || MigrationError::Zones(format!("Unexpected zone format: {zone} is not a valid AWS zone"));
        regions.insert(region.ok_or_else(odd)?);
    }
    one(&regions)
}

/// The region of zones of Google's.
pub(super) fn gce_region(zones: &[String]) -> Result<String> {
    some(zones)?;
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts.as_slice() else {
            return Err(MigrationError::Zones(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    one(&regions)
}

/// The name of a disk of Google's in these zones.
pub(super) fn gce(zones: &[&str], disk: &str) -> Result<String> {
    match zones {
        [zone] if !zone.is_empty() => Ok(gce_zonal(OPEN, zone, disk)),
        [] | [_] => Ok(gce_zonal(OPEN, OPEN, disk)),
        several => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            let region = gce_region(&several).map_err(|why| MigrationError::Region(Box::new(why)))?;
            Ok(gce_regional(OPEN, &region, disk))
        }
    }
}

fn gce_zonal(project: &str, zone: &str, disk: &str) -> String {
    format!("projects/{project}/zones/{zone}/disks/{disk}")
}

fn gce_regional(project: &str, region: &str, disk: &str) -> String {
    format!("projects/{project}/regions/{region}/disks/{disk}")
}

/// The disk of a name at Google.
pub(super) fn gce_disk(id: &str) -> Result<String> {
    let parts: Vec<&str> = id.split('/').collect();
    match parts.get(GCE_PARTS - 1) {
        Some(disk) => Ok((*disk).to_owned()),
        None => handle(format!(
            "failed to get id components.Got: {}, wanted {GCE_PARTS} components or more. ",
            parts.len()
        )),
    }
}

/// A disk's name at Google with the project and place of a node where it has none.
pub(super) fn repaired_gce(id: &str, node: &str) -> Result<String> {
    let parts = |what: &str, of: &str| -> Result<Vec<String>> {
        let parts: Vec<String> = of.split('/').map(str::to_owned).collect();
        if parts.len() < GCE_PARTS {
            let count = parts.len();
            return handle(format!(
                "{what} handle has wrong number of elements; got {count}, wanted {GCE_PARTS} or more"
            ));
        }
        Ok(parts)
    };
    let of = parts("volume", id)?;
    if of[1] != OPEN {
        return Ok(id.to_owned());
    }
    let node = parts("node", node)?;
    match of[2].as_str() {
        "zones" => {
            let zone = if of[3] == OPEN { &node[3] } else { &of[3] };
            Ok(gce_zonal(&node[1], zone, &of[5]))
        }
        "regions" => {
            let region = if of[3] == OPEN {
                let zone = node[3].clone();
                gce_region(std::slice::from_ref(&zone))
                    .map_err(|why| MigrationError::NodeRegion { zone, why: Box::new(why) })?
            } else {
                of[3].clone()
            };
            Ok(gce_regional(&node[1], &region, &of[5]))
        }
        other => {
            handle(format!("expected volume handle to have zones or regions regionality value, got: {other}"))
        }
    }
}

/// Whether a disk of Azure's is a managed one.
pub(super) fn is_managed(uri: &str) -> bool {
    !(uri.len() > 4 && uri.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http")))
}

/// The texts before and after the last of these marks after which there is one.
fn after_last<'t>(text: &'t str, mark: &str) -> Option<(&'t str, &'t str)> {
    let mut all = text.rmatch_indices(mark).map(|(at, _)| (&text[..at], &text[at + mark.len()..]));
    all.find(|(_, after)| !after.is_empty())
}

/// The name of a disk of Azure's.
pub(super) fn azure_disk(uri: &str) -> Result<String> {
    let (name, form) = if is_managed(uri) {
        let disk = after_last(uri, "/providers/Microsoft.Compute/disks/");
        let name = disk.filter(|(before, _)| {
            before.rsplit_once("/resourceGroups/").is_some_and(|(of, _)| of.contains("/subscriptions/"))
        });
        let form = ".*/subscriptions/(?:.*)/resourceGroups/(?:.*)/providers/Microsoft.Compute/disks/(.+)";
        (name, form)
    } else {
        let host = |before: &str| before.split_once("http").is_some_and(|(_, rest)| rest.contains("://"));
        let name = after_last(uri, "/vhds/").filter(|(before, _)| host(before));
        (name, "http(?:.*)://(?:.*)/vhds/(.+)")
    };
    match name {
        Some((_, name)) => Ok(name.to_owned()),
        None => handle(format!("could not get disk name from {uri}, correct format: {form}")),
    }
}

/// The account that a Secret of Azure's is for, by its name.
pub(super) fn azure_account(secret: &str) -> Result<String> {
    const FORM: &str = "azure-storage-account-(.+)-secret";
    let account =
        secret.split_once("azure-storage-account-").and_then(|(_, rest)| rest.rsplit_once("-secret"));
    match account {
        Some((account, _)) if !account.is_empty() => Ok(account.to_owned()),
        _ => handle(format!("could not get account name from {secret}, correct format: {FORM}")),
    }
}

/// The parts of a share's name: the group of resources, the account, the share, and the disk, if there is one.
pub(super) fn azure_share(id: &str) -> Result<[String; 4]> {
    let parts: Vec<&str> = id.split('#').collect();
    let [group, account, share, rest @ ..] = parts.as_slice() else {
        return handle(format!("error parsing volume id: {}, should at least contain two #", quote(id)));
    };
    let disk = rest.first().copied().unwrap_or_default();
    Ok([*group, *account, *share, disk].map(str::to_owned))
}
