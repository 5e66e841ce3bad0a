//! The plugin's configuration: the levels without labels, and the exemptions.

use api::field::{Errors, Path};
use api::status::FieldError;
use serde::Deserialize;

use super::policy::{Level, Mode, Policy, Version};
use crate::admission::config::{self, Unknown};

const VERSIONS: [&str; 3] = [
    "pod-security.admission.config.k8s.io/v1",
    "pod-security.admission.config.k8s.io/v1beta1",
    "pod-security.admission.config.k8s.io/v1alpha1",
];

#[derive(Deserialize)]
struct Document {
    defaults: Option<Defaults>,
    exemptions: Option<Exempt>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct Defaults {
    enforce: Option<String>,
    enforce_version: Option<String>,
    audit: Option<String>,
    audit_version: Option<String>,
    warn: Option<String>,
    warn_version: Option<String>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Exempt {
    usernames: Option<Vec<String>>,
    namespaces: Option<Vec<String>>,
    runtime_classes: Option<Vec<String>>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// The users, namespaces and runtime classes that are exempt.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Exemptions {
    pub(super) usernames: Vec<String>,
    pub(super) namespaces: Vec<String>,
    pub(super) runtime_classes: Vec<String>,
}

/// Upstream's `PodSecurityConfiguration`.
#[derive(Debug, PartialEq)]
pub(super) struct Configuration {
    pub(super) defaults: Policy,
    pub(super) exemptions: Exemptions,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { defaults: Policy::PRIVILEGED, exemptions: Exemptions::default() }
    }
}

impl Configuration {
    /// Reads a document; without one, or with an empty one, returns the default.
    pub(super) fn parse(text: Option<&[u8]>) -> Result<Self, String> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Self::default()) };
        let document: Document = config::document(text, "PodSecurityConfiguration", &VERSIONS)
            .map_err(|why| format!("couldn't init admission plugin \"PodSecurity\": {why}"))?;
        let defaults = document.defaults.unwrap_or_default();
        let exempt = document.exemptions.unwrap_or_default();
        let below = |at: &str, unknown: Unknown| {
            unknown.into_keys().map(|key| format!("{at}.{key}")).collect::<Vec<_>>()
        };
        let mut unknown: Vec<String> = document.unknown.into_keys().collect();
        let modes = [
            (Mode::Enforce, defaults.enforce, defaults.enforce_version),
            (Mode::Audit, defaults.audit, defaults.audit_version),
            (Mode::Warn, defaults.warn, defaults.warn_version),
        ];
        unknown.extend(below("defaults", defaults.unknown));
        unknown.extend(below("exemptions", exempt.unknown));
        config::strict(&unknown)
            .map_err(|why| format!("couldn't init admission plugin \"PodSecurity\": {why}"))?;
        let defaults = defaults_of(modes).map_err(|errors| initialized("configuration error", &errors))?;
        let exemptions = Exemptions {
            usernames: exempt.usernames.unwrap_or_default(),
            namespaces: exempt.namespaces.unwrap_or_default(),
            runtime_classes: exempt.runtime_classes.unwrap_or_default(),
        };
        let errors: Vec<String> = exemptions.validate().iter().map(FieldError::to_string).collect();
        if !errors.is_empty() {
            return Err(initialized("invalid", &errors));
        }
        Ok(Self { defaults, exemptions })
    }
}

fn initialized(what: &str, errors: &[String]) -> String {
    format!(
        "failed to initialize admission plugin \"PodSecurity\": PodSecurity {what}: {}",
        aggregate(errors)
    )
}

/// Several errors as Go prints them: one alone, more in brackets.
pub(super) fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn defaults_of(modes: [(Mode, Option<String>, Option<String>); 3]) -> Result<Policy, Vec<String>> {
    let (mut policy, mut errors) = (Policy::PRIVILEGED, Vec::new());
    for (mode, level, version) in modes {
        let of_mode = policy.at_mut(mode);
        if let Some(text) = level.filter(|text| !text.is_empty()) {
            match Level::parse(&text) {
                Ok(level) => of_mode.level = level,
                Err(why) => errors.push(format!("{}: {why}", mode.text())),
            }
        }
        if let Some(text) = version.filter(|text| !text.is_empty()) {
            match Version::parse(&text) {
                Ok(version) => of_mode.version = version,
                Err(why) => errors.push(format!("{}-version: {why}", mode.text())),
            }
        }
    }
    if errors.is_empty() { Ok(policy) } else { Err(errors) }
}

impl Exemptions {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let label = |name: &str| api::names::name_label(name, false).join(", ");
        let subdomain = |name: &str| api::names::name_subdomain(name, false).join(", ");
        let present =
            |name: &str| if name.is_empty() { "username must not be empty".into() } else { String::new() };
        unique(&mut errors, "exemptions.namespaces", &self.namespaces, label);
        unique(&mut errors, "exemptions.runtimeClasses", &self.runtime_classes, subdomain);
        unique(&mut errors, "exemptions.usernames", &self.usernames, present);
        errors.0
    }
    /// Whether a list has a name; the empty name is in no list.
    pub(super) fn has(list: &[String], name: &str) -> bool {
        !name.is_empty() && list.iter().any(|exempt| exempt == name)
    }
}

/// Checks that each name is valid and occurs once; `complaint` is empty for a valid one.
fn unique(errors: &mut Errors, at: &str, names: &[String], complaint: impl Fn(&str) -> String) {
    let at = Path::root(at);
    for (i, name) in names.iter().enumerate() {
        let why = complaint(name);
        if !why.is_empty() {
            errors.invalid(&at.index(i), name.as_str(), why);
        } else if names[..i].contains(name) {
            errors.duplicate(&at.index(i), name.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::LevelVersion;
    use super::*;

    #[test]
    fn documents() {
        let baseline = |version| Configuration {
            defaults: Policy {
                enforce: LevelVersion { level: Level::Baseline, version },
                ..Policy::PRIVILEGED
            },
            exemptions: Exemptions::default(),
        };
        let check = |text: &str, want: Configuration| {
            assert_eq!(Configuration::parse(Some(text.as_bytes())), Ok(want), "{text}");
        };
        assert_eq!(Configuration::parse(None), Ok(Configuration::default()));
        check("", Configuration::default());
        for version in ["v1alpha1", "v1beta1", "v1"] {
            let api = format!("pod-security.admission.config.k8s.io/{version}");
            let json = format!(
                r#"{{"apiVersion":"{api}","kind":"PodSecurityConfiguration","defaults":{{"enforce":"baseline"}}}}"#
            );
            check(&json, baseline(Version::Latest));
            let yaml = format!(
                "apiVersion: {api}\nkind: PodSecurityConfiguration\ndefaults:\n  enforce: baseline\n  enforce-version: v1.7\n\
                 exemptions:\n  usernames: [\"alice\",\"bob\"]\n  namespaces: [\"kube-system\"]\n  runtimeClasses: [\"special\"]\n"
            );
            let exemptions = Exemptions {
                usernames: vec!["alice".into(), "bob".into()],
                namespaces: vec!["kube-system".into()],
                runtime_classes: vec!["special".into()],
            };
            check(&yaml, Configuration { exemptions, ..baseline(Version::Minor(7)) });
        }
        let empty = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n\
                     defaults: {enforce: null, warn: ''}\nexemptions: null\n";
        check(empty, Configuration::default());
    }

    #[test]
    fn what_is_refused() {
        let check = |text: &str, want: &str| {
            let why = Configuration::parse(Some(text.as_bytes())).unwrap_err();
            assert!(why.contains(want), "{text}: {why}");
        };
        let group = "pod-security.admission.config.k8s.io";
        check(r#"{"kind":"PodSecurityConfiguration"}"#, "'apiVersion' is missing");
        check(&format!(r#"{{"apiVersion":"{group}/v1alpha1"}}"#), "'Kind' is missing");
        check(r#"{"apiVersion":"apps/v1alpha1","kind":"PodSecurityConfiguration"}"#, "apps/v1alpha1");
        check(
            &format!(r#"{{"apiVersion":"{group}/v99","kind":"PodSecurityConfiguration"}}"#),
            &format!("{group}/v99"),
        );
        check(
            &format!(r#"{{"apiVersion":"{group}/v1alpha1","kind":"SomeConfiguration"}}"#),
            "SomeConfiguration",
        );
        let of = |rest: &str| format!("apiVersion: {group}/v1\nkind: PodSecurityConfiguration\n{rest}\n");
        check(&of("deflaults: {enforce: baseline}"), "unknown field \"deflaults\"");
        check(&of("defaults: {enfroce: baseline}"), "unknown field \"defaults.enfroce\"");
        check(
            &of("defaults: {enforce: baslein, enforce-version: v.122, audit: lorum, audit-version: ipsum}"),
            "failed to initialize admission plugin \"PodSecurity\": PodSecurity configuration error: \
             [enforce: must be one of privileged, baseline, restricted, enforce-version: must be \"latest\" or \"v1.x\", \
             audit: must be one of privileged, baseline, restricted, audit-version: must be \"latest\" or \"v1.x\"]",
        );
        check(
            &of("exemptions: {usernames: ['']}"),
            "PodSecurity invalid: exemptions.usernames[0]: Invalid value: \"\": username must not be empty",
        );
    }

    #[test]
    fn exemptions_are_names_once() {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let long = "test".repeat(16);
        let exemptions = Exemptions {
            namespaces: list(&["", "_&$%#", "TEST", &long, "testing", "testing"]),
            runtime_classes: list(&["", "_&$%#", "TEST", "testing", "testing"]),
            usernames: list(&["", "testing", "testing"]),
        };
        let errors = exemptions.validate();
        let found: Vec<(&str, &str)> = errors.iter().map(|e| (e.field.as_str(), e.kind.text())).collect();
        let (invalid, duplicate) = ("Invalid value", "Duplicate value");
        assert_eq!(
            found,
            [
                ("exemptions.namespaces[0]", invalid),
                ("exemptions.namespaces[1]", invalid),
                ("exemptions.namespaces[2]", invalid),
                ("exemptions.namespaces[3]", invalid),
                ("exemptions.namespaces[5]", duplicate),
                ("exemptions.runtimeClasses[0]", invalid),
                ("exemptions.runtimeClasses[1]", invalid),
                ("exemptions.runtimeClasses[2]", invalid),
                ("exemptions.runtimeClasses[4]", duplicate),
                ("exemptions.usernames[0]", invalid),
                ("exemptions.usernames[2]", duplicate),
            ]
        );
    }
}
