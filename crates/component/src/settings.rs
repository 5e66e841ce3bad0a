//! The rule for the flags and the configuration files that upstream's components take.
//!
//! A component honours a setting, or has it in a [`Table`]: a setting without meaning here is accepted with a warning;
//! one that asks for a missing guard or behaviour is refused with a sentence, unless its value describes the behaviour
//! that there is. A setting that is neither is unknown. So no setting is ignored in silence.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The settings of a component that it does not honour.
#[derive(Debug)]
pub struct Table(BTreeMap<&'static str, Entry>);

#[derive(Debug)]
struct Entry {
    /// Whether the flag stands for `true` if it has no value.
    boolean: bool,
    /// Whether any other value is accepted all the same, with a warning.
    without_meaning: bool,
    /// The values that describe the behaviour that there is.
    done: Vec<&'static str>,
    /// The reason, as part of a sentence.
    why: &'static str,
}

/// An error of a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The setting asks for a guard or a behaviour that is missing.
    #[error("{name}={value} cannot be had: {why}; leave it out")]
    Refused {
        /// The setting, as it was written: a flag with its dashes, or a path in a file.
        name: String,
        /// The value that was asked for.
        value: String,
        /// The reason, with the behaviour that there is.
        why: &'static str,
    },
    /// A flag has no value.
    #[error("flag needs an argument: {0}")]
    NoValue(String),
}

/// The arguments that a component honours, or does not know, and the warnings about the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// The arguments without the table's flags.
    pub arguments: Vec<OsString>,
    /// A sentence for each setting that has no meaning here.
    pub warnings: Vec<String>,
    /// The table's flags that were given, by their names, with their values.
    pub given: BTreeMap<String, String>,
}

impl Table {
    /// Reads a table: a line for each setting with its name, its type (`bool` or `value`), its rule (`nothing` or
    /// `refused`), the values that describe the behaviour that there is (separated by `|`, `""` for the empty one), and
    /// the reason; with tabs between. The first line is a heading.
    ///
    /// # Errors
    /// The number of the line that is not one of a table.
    pub fn parse(text: &'static str) -> Result<Self, usize> {
        let entry = |line: &'static str| {
            let columns: [&'static str; 5] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
            let [name, kind, rule, done, why] = columns;
            let entry = Entry {
                boolean: ["value", "bool"].iter().position(|k| *k == kind)? == 1,
                without_meaning: ["refused", "nothing"].iter().position(|r| *r == rule)? == 1,
                done: done.split('|').filter(|d| !d.is_empty()).map(|d| d.trim_matches('"')).collect(),
                why: Some(why).filter(|w| !w.is_empty())?,
            };
            Some((name, entry))
        };
        let lines = text.lines().enumerate().skip(1);
        lines.map(|(i, line)| entry(line).ok_or(i + 1)).collect::<Result<_, _>>().map(Self)
    }

    /// The names of the settings.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// The settings whose value must describe the behaviour that there is, with the first such value.
    pub fn fixed(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let fixed = self.0.iter().filter(|(_, entry)| !entry.without_meaning);
        fixed.map(|(name, entry)| (*name, entry.done.first().copied().unwrap_or_default()))
    }

    /// Judges a setting by the name that the table has for it, and by the name that its user wrote: a warning, nothing
    /// if the value describes the behaviour that there is, or a refusal. `None` if the table does not have it.
    pub fn judge(
        &self,
        name: &str,
        written: &str,
        value: &str,
    ) -> Option<Result<Option<String>, SettingError>> {
        let entry = self.0.get(name)?;
        Some(if entry.done.contains(&value) {
            Ok(None)
        } else if entry.without_meaning {
            Ok(Some(format!("{written} has no effect here: {}", entry.why)))
        } else {
            Err(SettingError::Refused { name: written.to_owned(), value: value.to_owned(), why: entry.why })
        })
    }

    /// Takes the flags of the table out of a command line, as pflag reads it: `--name=value`, `--name value`, `--name`
    /// for a boolean, and `_` is as good as `-`. All other arguments stay, and so do those after `--`.
    ///
    /// # Errors
    /// A flag is refused or has no value.
    pub fn sift(&self, arguments: impl IntoIterator<Item = OsString>) -> Result<Sifted, SettingError> {
        let mut out = Sifted::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                out.arguments.push(argument);
                out.arguments.extend(arguments);
                break;
            }
            let Some((name, given)) = argument.to_str().and_then(flag) else {
                out.arguments.push(argument);
                continue;
            };
            let Some(entry) = self.0.get(name.as_str()) else {
                let value = given.map(|v| format!("={v}")).unwrap_or_default();
                out.arguments.push(format!("--{name}{value}").into());
                continue;
            };
            let written = format!("--{name}");
            let value = match given {
                Some(value) => value.to_owned(),
                None if entry.boolean => "true".to_owned(),
                None => match arguments.next() {
                    Some(value) => value.to_string_lossy().into_owned(),
                    None => return Err(SettingError::NoValue(written)),
                },
            };
            if let Some(verdict) = self.judge(&name, &written, value.trim_matches('"')) {
                out.warnings.extend(verdict?.filter(|w| !out.warnings.contains(w)));
            }
            out.given.insert(name, value);
        }
        Ok(out)
    }
}

/// Returns the name of a flag, and its value if it follows `=`.
fn flag(argument: &str) -> Option<(String, Option<&str>)> {
    let (name, value) = argument.split_once('=').map_or((argument, None), |(n, v)| (n, Some(v)));
    Some((name.strip_prefix("--")?.replace('_', "-"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "flag\ttype\trule\tdone\twhy\n\
        guard\tvalue\trefused\t\"\"|Node,RBAC\tthe authorizers are Node and RBAC\n\
        mode\tbool\trefused\ttrue\tit is always done\n\
        profiling\tbool\tnothing\tfalse\tthere are no profiles\n\
        qps\tvalue\tnothing\t\tnobody counts\n";

    fn check(arguments: &str, left: &str, warnings: &[&str]) {
        let sifted = Table::parse(TABLE).unwrap().sift(arguments.split(' ').map(Into::into)).unwrap();
        let all: Vec<_> = sifted.arguments.iter().map(|a| a.to_str().unwrap()).collect();
        assert_eq!(
            (all.join(" ").as_str(), sifted.warnings),
            (left, warnings.iter().map(|w| (*w).to_owned()).collect())
        );
    }

    fn refused(arguments: &str, sentence: &str) {
        let error = Table::parse(TABLE).unwrap().sift(arguments.split(' ').map(Into::into)).unwrap_err();
        assert_eq!(error.to_string(), sentence);
    }

    #[test]
    fn flags_are_sifted_as_pflag_reads_them() {
        let qps = "--qps has no effect here: nobody counts";
        let profiling = "--profiling has no effect here: there are no profiles";
        check("up --port=1 x", "up --port=1 x", &[]);
        check("a --guard= --guard=Node,RBAC --guard Node,RBAC b", "a b", &[]);
        check("--mode --mode=true b", "b", &[]);
        check("--profiling b", "b", &[profiling]);
        check("--profiling=false b", "b", &[]);
        check("--qps=6 --qps 9 b", "b", &[qps]);
        check("-v 4 -v4 -v=2 --v=6 b", "-v 4 -v4 -v=2 --v=6 b", &[]);
        check("--event_ttl=1h --port_a 2 -x", "--event-ttl=1h --port-a 2 -x", &[]);
        check("a -- --guard=no", "a -- --guard=no", &[]);
        let table = Table::parse(TABLE).unwrap();
        let sifted = table.sift(["--qps", "9", "--mode", "--x=1"].map(Into::into)).unwrap();
        let given = |name: &str| sifted.given.get(name).map(String::as_str);
        assert_eq!([given("qps"), given("mode"), given("x")], [Some("9"), Some("true"), None]);
        assert_eq!(table.fixed().collect::<Vec<_>>(), [("guard", ""), ("mode", "true")]);
    }

    #[test]
    fn asking_for_a_guard_that_is_not_there_is_an_error() {
        let why = "the authorizers are Node and RBAC; leave it out";
        refused("--guard=AlwaysAllow", &format!("--guard=AlwaysAllow cannot be had: {why}"));
        refused("--guard Webhook", &format!("--guard=Webhook cannot be had: {why}"));
        refused("--mode=false", "--mode=false cannot be had: it is always done; leave it out");
        refused("a --guard", "flag needs an argument: --guard");
    }

    #[test]
    fn a_table_is_read_whole_or_not_at_all() {
        assert_eq!(Table::parse(TABLE).unwrap().names().count(), 4);
        for (broken, line) in [
            ("h\na\tbool\tnothing\t\n", 2),
            ("h\na\tbool\tnothing\t\tw\nb\tint\tnothing\t\tw\n", 3),
            ("h\na\tbool\tsomething\t\tw\n", 2),
            ("h\na\tbool\tnothing\t\t\n", 2),
        ] {
            assert_eq!(Table::parse(broken).unwrap_err(), line, "{broken:?}");
        }
    }
}
