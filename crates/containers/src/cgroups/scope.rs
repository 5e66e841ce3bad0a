//! Scopes of systemd: a container's cgroup as a unit, its limits as properties. Pure.
//!
//! The rules are those of runc's systemd driver: limits that systemd has a word for are properties, so that they are
//! there after it has read its configuration anew; all are written into files, too.

use systemd::{INFINITY, Property, Value, bits, expand_slice, quota_per_second};

use super::devices::Rule;
use super::write::Write;
use crate::error::{Error, Result};

/// The period of processor time where a limit names none, in microseconds; the kernel's.
const PERIOD: i64 = 100_000;
/// The versions of systemd from which on it knows the period of quotas, sets of processors, and weights of the idle.
const OF_PERIOD: u32 = 242;
const OF_SETS: u32 = 244;
const OF_IDLE: u32 = 252;

/// A scope and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) slice: String,
    /// The name of its unit.
    pub(super) unit: String,
    /// The words that people see of it.
    pub(super) description: String,
    /// Its cgroup below the root of a hierarchy.
    pub(super) path: String,
}

impl Scope {
    /// Reads `SLICE:PREFIX:NAME`, runc's form of it.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let (Some(slice), Some(prefix), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Error::Invalid(format!(
                "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got {text:?} instead"
            )));
        };
        let above = expand_slice(slice).map_err(|e| Error::Invalid(e.to_string()))?;
        let unit = format!("{prefix}-{name}.scope");
        let sane = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        if prefix.is_empty() || name.is_empty() || unit.len() > 255 || !unit.chars().all(sane) {
            return Err(Error::Invalid(format!("{unit:?} is no name of a scope")));
        }
        let path = format!("{above}/{unit}").trim_start_matches('/').to_owned();
        let description = format!("libcontainer container {name}");
        Ok(Self { slice: slice.to_owned(), unit, description, path })
    }
}

/// Whether the place of a cgroup is a scope of systemd's. Others are paths, which begin with a slash.
pub(crate) fn is_scope(place: &str) -> bool {
    !place.starts_with('/') && place.contains(':')
}

/// The limits as systemd takes them: a quota of processor time is rounded up to whole hundredths of a processor, because
/// otherwise systemd's figure and the file's would differ.
pub(super) fn rounded(writes: Vec<Write>) -> Vec<Write> {
    let period = number(&writes, "cpu.cfs_period_us").unwrap_or(PERIOD);
    let mut out = writes;
    for write in &mut out {
        match write.file.as_str() {
            "cpu.cfs_quota_us" => {
                if let Ok(quota) = write.value.parse() {
                    write.value = round(quota, period).to_string();
                }
            }
            "cpu.max" => {
                if let Some((quota, period)) = quota_and_period(&write.value).filter(|(quota, _)| *quota > 0)
                {
                    write.value = format!("{} {period}", round(quota, period));
                }
            }
            _ => {}
        }
    }
    out
}

/// A quota as systemd makes it of its own figure.
fn round(quota: i64, period: i64) -> i64 {
    match quota_per_second(quota, period) {
        INFINITY => quota,
        per_second => i64::try_from(u128::from(per_second) * u128::from(period.unsigned_abs()) / 1_000_000)
            .unwrap_or(i64::MAX),
    }
}

/// The quota, negative for none, and the period in a value of `cpu.max`.
fn quota_and_period(value: &str) -> Option<(i64, i64)> {
    let mut words = value.split_whitespace();
    let quota = match words.next()? {
        "max" => -1,
        quota => quota.parse().ok()?,
    };
    Some((quota, words.next().map_or(Some(PERIOD), |period| period.parse().ok())?))
}

fn number(writes: &[Write], file: &str) -> Option<i64> {
    writes.iter().rev().find(|write| write.file == file)?.value.parse().ok()
}

/// The limits as properties of a systemd of this version. Those that it has no word for are left out.
pub(super) fn properties(writes: &[Write], version: u32) -> Result<Vec<Property<'static>>> {
    let mut out = Vec::new();
    let is_idle = version >= OF_IDLE && writes.iter().any(|w| w.file == "cpu.idle" && w.value.trim() == "1");
    for write in writes {
        let value = write.value.trim();
        let refused = || Error::Invalid(format!("{value:?} is no limit that {} can have", write.file));
        let limit = || match value {
            "max" | "-1" => Ok(INFINITY),
            other => other.parse::<u64>().map_err(|_| refused()),
        };
        let set = || bits(value).map_err(|e| Error::Invalid(format!("{}={value:?}: {e}", write.file)));
        let mut add = |name: &'static str, value: u64| out.push((name, Value::Number(value)));
        match write.file.as_str() {
            // Version 1. A value that systemd does not take is the kernel's nearest, which the file gets.
            "cpu.shares" => add("CPUShares", limit()?.clamp(2, 262_144)),
            "memory.limit_in_bytes" => add("MemoryLimit", limit()?),
            "blkio.weight" => add("BlockIOWeight", limit()?.clamp(10, 1000)),
            "cpu.cfs_period_us" if number(writes, "cpu.cfs_quota_us").is_none() => {
                quota(&mut out, (-1, value.parse().map_err(|_| refused())?), version);
            }
            "cpu.cfs_quota_us" => {
                let period = number(writes, "cpu.cfs_period_us").unwrap_or(PERIOD);
                quota(&mut out, (value.parse().map_err(|_| refused())?, period), version);
            }
            // Version 2.
            "cpu.weight" if is_idle => {}
            "cpu.weight" => add("CPUWeight", limit()?),
            // systemd has no word for processes that are not idle.
            "cpu.idle" if is_idle => add("CPUWeight", 0),
            "cpu.max" => quota(&mut out, quota_and_period(value).ok_or_else(refused)?, version),
            "cpuset.cpus" if write.controller.is_empty() && version >= OF_SETS => {
                out.push(("AllowedCPUs", Value::Bytes(set()?)));
            }
            "cpuset.mems" if write.controller.is_empty() && version >= OF_SETS => {
                out.push(("AllowedMemoryNodes", Value::Bytes(set()?)));
            }
            "memory.max" => add("MemoryMax", limit()?),
            "memory.high" => add("MemoryHigh", limit()?),
            "memory.low" => add("MemoryLow", limit()?),
            "memory.min" => add("MemoryMin", limit()?),
            "memory.swap.max" => add("MemorySwapMax", limit()?),
            "io.weight" => {
                // A weight of a single disk has no word.
                if let Ok(weight) = value.strip_prefix("default ").unwrap_or(value).parse() {
                    add("IOWeight", weight);
                }
            }
            // Both. systemd takes no 0.
            "pids.max" => add("TasksMax", limit()?.max(1)),
            _ => {}
        }
    }
    Ok(out)
}

fn quota(out: &mut Vec<Property<'static>>, (quota, period): (i64, i64), version: u32) {
    if version >= OF_PERIOD
        && let Ok(period) = u64::try_from(period)
    {
        out.push(("CPUQuotaPeriodUSec", Value::Number(period)));
    }
    out.push(("CPUQuotaPerSecUSec", Value::Number(quota_per_second(quota, period))));
}

/// Rules about devices as properties, for version 1, where systemd writes rules of its own into the files: without these it
/// would allow every device when it reads its configuration anew. In version 2 its program and ours stand side by side, so
/// it needs none.
pub(super) fn devices(rules: &[Rule]) -> Vec<Property<'static>> {
    let policy = |policy: &'static str, allowed: Vec<(String, String)>| {
        vec![("DevicePolicy", Value::Text(policy)), ("DeviceAllow", Value::Pairs(allowed))]
    };
    // As in the kernel, a rule for all devices begins anew.
    let last = rules.iter().rposition(|rule| rule.kind == 'a');
    if last.is_some_and(|last| rules[last].allow && rules[last + 1..].iter().all(|rule| rule.allow)) {
        return policy("auto", Vec::new());
    }
    let mut allowed: Vec<(&Rule, String)> = Vec::new();
    for rule in &rules[last.map_or(0, |last| last + 1)..] {
        let same =
            |other: &Rule| (other.kind, other.major, other.minor) == (rule.kind, rule.major, rule.minor);
        if let Some((_, access)) = allowed.iter_mut().find(|(other, _)| same(other)) {
            access.retain(|a| !rule.access.contains(a));
            if rule.allow {
                access.push_str(&rule.access);
            }
        } else if rule.allow {
            allowed.push((rule, rule.access.clone()));
        }
    }
    let allowed = allowed.into_iter().filter(|(_, access)| !access.is_empty());
    policy("strict", allowed.filter_map(|(rule, access)| Some((device(rule)?, access))).collect())
}

/// A rule's devices in systemd's words; none for those that it has none for: all devices with a minor number, whatever the
/// major one is.
fn device(rule: &Rule) -> Option<String> {
    let kind = if rule.kind == 'b' { "block" } else { "char" };
    match (rule.major, rule.minor) {
        (None, None) => Some(format!("{kind}-*")),
        (Some(major), None) => Some(format!("{kind}-{major}")),
        (Some(major), Some(minor)) => Some(format!("/dev/{kind}/{major}:{minor}")),
        (None, Some(_)) => None,
    }
}
