//! The policy that a namespace's labels ask for.

use std::fmt;

use api::Text;
use api::field::{Errors, Path};
use api::status::FieldError;

/// How much a policy forbids; each level forbids more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The release whose rules count; the latest is newer than any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// `v1.N`
    Minor(i64),
    Latest,
}

impl Version {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let digits = text.strip_prefix("v1.").filter(|d| {
            d.bytes().all(|b| b.is_ascii_digit()) && !d.is_empty() && (*d == "0" || !d.starts_with('0'))
        });
        digits.and_then(|d| d.parse().ok()).map(Self::Minor).ok_or("must be \"latest\" or \"v1.x\"")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// A level as of a version; printed as `restricted:latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    pub(super) const PRIVILEGED: Self = Self { level: Level::Privileged, version: Version::Latest };

    pub(super) fn is_privileged(self) -> bool {
        self.level == Level::Privileged
    }
    /// Whether both forbid the same: of the privileged level all versions do.
    fn equivalent(self, other: Self) -> bool {
        self == other || self.is_privileged() && other.is_privileged()
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.text(), self.version)
    }
}

/// The consequence for a pod that violates a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It is refused.
    Enforce,
    /// It is noted for the audit.
    Audit,
    /// Its sender is warned.
    Warn,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Enforce, Self::Audit, Self::Warn];

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Audit => "audit",
            Self::Warn => "warn",
        }
    }
    /// The label that says the level, and the one that says the version.
    fn labels(self) -> [&'static str; 2] {
        match self {
            Self::Enforce => {
                ["pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/enforce-version"]
            }
            Self::Audit => ["pod-security.kubernetes.io/audit", "pod-security.kubernetes.io/audit-version"],
            Self::Warn => ["pod-security.kubernetes.io/warn", "pod-security.kubernetes.io/warn-version"],
        }
    }
}

const LABELS: Path<'_> = Path::root("metadata.labels");

/// A level for each mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

impl Policy {
    pub(super) const PRIVILEGED: Self = Self {
        enforce: LevelVersion::PRIVILEGED,
        audit: LevelVersion::PRIVILEGED,
        warn: LevelVersion::PRIVILEGED,
    };

    pub(super) fn at(&self, mode: Mode) -> LevelVersion {
        match mode {
            Mode::Enforce => self.enforce,
            Mode::Audit => self.audit,
            Mode::Warn => self.warn,
        }
    }
    pub(super) fn at_mut(&mut self, mode: Mode) -> &mut LevelVersion {
        match mode {
            Mode::Enforce => &mut self.enforce,
            Mode::Audit => &mut self.audit,
            Mode::Warn => &mut self.warn,
        }
    }
    pub(super) fn is_privileged(&self) -> bool {
        Mode::ALL.iter().all(|mode| self.at(*mode).is_privileged())
    }
    fn equivalent(&self, other: &Self) -> bool {
        Mode::ALL.iter().all(|mode| self.at(*mode).equivalent(other.at(*mode)))
    }

    /// The policy of a namespace with these labels. There is always one: of a label that cannot be read, the latest
    /// version counts, and as a level the strictest for what is enforced, none for the rest.
    pub(super) fn of<'a>(
        label: impl Fn(&str) -> Option<&'a str>,
        defaults: Policy,
    ) -> (Self, Vec<FieldError>) {
        let mut policy = defaults;
        let mut errors = Errors::new();
        let mut enforces = false;
        for mode in Mode::ALL {
            let [level, version] = mode.labels();
            let of_mode = policy.at_mut(mode);
            if let Some(text) = label(level) {
                let parsed = Level::parse(text);
                let unreadable = if mode == Mode::Enforce { Level::Restricted } else { Level::Privileged };
                of_mode.level = parsed.unwrap_or(unreadable);
                enforces |= mode == Mode::Enforce && parsed.is_ok();
                if let Err(why) = parsed {
                    errors.invalid(&LABELS.key(level), text, why);
                }
            }
            if let Some(text) = label(version) {
                let parsed = Version::parse(text);
                of_mode.version = parsed.unwrap_or(Version::Latest);
                if let Err(why) = parsed {
                    errors.invalid(&LABELS.key(version), text, why);
                }
            }
        }
        // Who enforces more than is warned of by default wants to be warned of as much.
        let [warn, warn_version] = Mode::Warn.labels();
        if enforces && label(warn).is_none() && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if label(warn_version).is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors.0)
    }

    /// Tells that an exempt namespace's labels do nothing, if they ask for anything.
    pub(super) fn exempt_warning<'a>(
        &self,
        namespace: &str,
        label: impl Fn(&str) -> Option<&'a str>,
        defaults: &Policy,
    ) -> Option<String> {
        if self.is_privileged() || self.equivalent(defaults) {
            return None;
        }
        let asked = Mode::ALL.iter().filter(|mode| {
            !self.at(**mode).is_privileged() && mode.labels().iter().any(|name| label(name).is_some())
        });
        let asked: Vec<String> = asked.map(|mode| format!("{}={}", mode.text(), self.at(*mode))).collect();
        Some(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            api::go::quote(namespace),
            asked.join(", ")
        ))
    }
}

/// Finds one of the labels of a stored object.
pub(super) fn stored_label<'a>(labels: &'a [(Text, Text)], name: &str) -> Option<&'a str> {
    labels.binary_search_by(|(key, _)| key.as_str().cmp(name)).ok().map(|i| labels[i].1.as_str())
}
