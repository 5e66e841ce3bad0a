//! The flags of a kubelet that upstream's KubeletConfiguration has fields for. A flag counts more than the file.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use k8s_openapi::api::core::v1::Taint;
use kubelet::eviction::Statements;
use serde_json::{Map, Value, json};

/// The flags, each with its field, the kind of its value, and its help.
const TABLE: &str = include_str!("fields.tsv");

/// The kinds of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Bool,
    /// Values separated by commas.
    List,
    /// `key=value`, separated by commas.
    Pairs,
    /// `signal<value`, separated by commas.
    Statements,
    /// `key=value:effect`, separated by commas.
    Taints,
    /// `name:value`, separated by commas; a name may have several values.
    Headers,
    /// `Name=true`, separated by commas.
    Gates,
    /// `node:kind=value,kind=value`, separated by semicolons.
    Memory,
}

struct Row {
    flag: &'static str,
    field: &'static str,
    kind: Kind,
    help: &'static str,
}

fn rows() -> impl Iterator<Item = Row> {
    TABLE.lines().skip(1).filter_map(|line| {
        let [flag, field, kind, help]: [&'static str; 4] =
            line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let kind = match kind {
            "text" => Kind::Text,
            "number" => Kind::Number,
            "bool" => Kind::Bool,
            "list" => Kind::List,
            "pairs" => Kind::Pairs,
            "statements" => Kind::Statements,
            "taints" => Kind::Taints,
            "headers" => Kind::Headers,
            "gates" => Kind::Gates,
            "memory" => Kind::Memory,
            _ => return None,
        };
        Some(Row { flag, field, kind, help })
    })
}

/// The fields that flags were given for, by their paths in the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(pub(crate) Map<String, Value>);

/// A flag's value as the file would have it.
fn value(kind: Kind, all: &[&str]) -> Result<Value, String> {
    let last = all.last().copied().unwrap_or_default();
    let parts = || all.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|part| !part.is_empty());
    Ok(match kind {
        Kind::Text => json!(last),
        Kind::Number => json!(last.parse::<i64>().map_err(|_| format!("{last:?} is no number"))?),
        Kind::Bool => json!(last.parse::<bool>().map_err(|_| format!("{last:?} is neither true nor false"))?),
        Kind::List => json!(parts().collect::<Vec<_>>()),
        Kind::Pairs => {
            let pair = |part: &str| {
                let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is no key=value"))?;
                Ok((key.to_owned(), value.to_owned()))
            };
            json!(parts().map(pair).collect::<Result<BTreeMap<_, _>, String>>()?)
        }
        Kind::Gates => {
            let gate = |part: &str| {
                let (name, on) =
                    part.split_once('=').ok_or_else(|| format!("missing bool value for {part}"))?;
                let on = api::go::parse_bool(on.trim());
                Ok((name.trim().to_owned(), on.ok_or_else(|| format!("{part:?} is neither true nor false"))?))
            };
            json!(parts().map(gate).collect::<Result<BTreeMap<_, _>, String>>()?)
        }
        Kind::Statements => {
            let read = |text: &&str| text.parse::<Statements>().map_err(|e| e.to_string());
            let all = all.iter().map(read).collect::<Result<Vec<_>, String>>()?;
            json!(all.into_iter().flat_map(|s| s.0).collect::<BTreeMap<_, _>>())
        }
        Kind::Headers => {
            let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for part in parts() {
                let (name, value) =
                    part.split_once(':').ok_or_else(|| format!("{part:?} is no name:value"))?;
                headers.entry(name.trim().to_owned()).or_default().push(value.trim().to_owned());
            }
            json!(headers)
        }
        Kind::Memory => {
            let nodes = all.iter().flat_map(|text| text.split(';')).map(str::trim).filter(|p| !p.is_empty());
            json!(nodes.map(memory).collect::<Result<Vec<_>, String>>()?)
        }
        Kind::Taints => {
            let read = |part| taint(part).map_err(|e| format!("invalid taint {part:?}: {e:#}"));
            json!(parts().map(read).collect::<Result<Vec<_>, String>>()?)
        }
    })
}

/// The amounts that are kept of a NUMA node, as upstream writes them: `0:memory=1Gi,hugepages-2Mi=1Gi`.
fn memory(text: &str) -> Result<Value, String> {
    let wrong = || format!("{text:?} is no node:kind=value");
    let (node, limits) = text.split_once(':').ok_or_else(wrong)?;
    let node: u32 = node.trim().parse().map_err(|_| wrong())?;
    let limit = |part: &str| {
        part.split_once('=').map(|(kind, value)| (kind.trim().to_owned(), value.trim().to_owned()))
    };
    let limits: Option<BTreeMap<String, String>> = limits.split(',').map(limit).collect();
    Ok(json!({"numaNode": node, "limits": limits.ok_or_else(wrong)?}))
}

/// A taint as upstream writes it: `key=value:effect` or `key:effect`.
fn taint(text: &str) -> Result<Taint> {
    let (pair, effect) = text.rsplit_once(':').context("it has no effect, as in key=value:NoSchedule")?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        bail!("{effect:?} is no effect of a taint");
    }
    let (key, value) =
        pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value.to_owned())));
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), ..Taint::default() })
}

impl Args for Fields {
    fn augment_args(command: Command) -> Command {
        rows().fold(command, |command, row| {
            let arg = Arg::new(row.flag).long(row.flag).help(row.help).action(clap::ArgAction::Append);
            let arg = if row.kind == Kind::Bool {
                arg.value_name("BOOL").num_args(0..=1).default_missing_value("true").require_equals(true)
            } else {
                arg.value_name(match row.kind {
                    Kind::Number => "N",
                    _ => "VALUE",
                })
            };
            command.arg(arg.allow_negative_numbers(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Fields {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut fields = Self::default();
        fields.update_from_arg_matches(matches)?;
        Ok(fields)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for row in rows() {
            let Some(given) = matches.get_many::<String>(row.flag) else { continue };
            let all: Vec<&str> = given.map(String::as_str).collect();
            let wrong = |why| {
                let text = format!("invalid value for --{}: {why}\n", row.flag);
                clap::Error::raw(ErrorKind::InvalidValue, text)
            };
            self.0.insert(row.field.to_owned(), value(row.kind, &all).map_err(wrong)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_file() {
        let check = |kind, all: &[&str], expected: Option<Value>| {
            assert_eq!(value(kind, all).ok(), expected, "{all:?}");
        };
        check(Kind::Text, &["a", "b"], Some(json!("b")));
        check(Kind::Number, &["-7"], Some(json!(-7)));
        check(Kind::Number, &["many"], None);
        check(Kind::Bool, &["false"], Some(json!(false)));
        check(Kind::Bool, &["maybe"], None);
        check(Kind::List, &["a,b", "c"], Some(json!(["a", "b", "c"])));
        check(Kind::Pairs, &["cpu=1,memory=1Gi"], Some(json!({"cpu": "1", "memory": "1Gi"})));
        check(Kind::Pairs, &["cpu"], None);
        check(Kind::Gates, &["A=true,B=0", "C=false"], Some(json!({"A": true, "B": false, "C": false})));
        check(Kind::Gates, &["A"], None);
        check(Kind::Gates, &["A=perhaps"], None);
        check(Kind::Statements, &["memory.available<1Gi"], Some(json!({"memory.available": "1Gi"})));
        check(Kind::Statements, &["memory.available=1Gi"], None);
        check(
            Kind::Taints,
            &["a=b:NoSchedule"],
            Some(json!([{"key": "a", "value": "b", "effect": "NoSchedule"}])),
        );
        check(Kind::Taints, &["a"], None);
        check(Kind::Headers, &["a:1,b:x:y", "a:2"], Some(json!({"a": ["1", "2"], "b": ["x:y"]})));
        check(Kind::Headers, &["a"], None);
        check(
            Kind::Memory,
            &["0:memory=1Gi,hugepages-2Mi=1Gi;1:memory=2Gi", "2:memory=1"],
            Some(json!([
                {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "1Gi"}},
                {"numaNode": 1, "limits": {"memory": "2Gi"}},
                {"numaNode": 2, "limits": {"memory": "1"}},
            ])),
        );
        check(Kind::Memory, &["memory=1Gi"], None);
        check(Kind::Memory, &["0:memory"], None);
        check(Kind::Memory, &["-1:memory=1Gi"], None);
        assert_eq!(rows().count(), TABLE.lines().count() - 1, "a line of the table is none");
    }

    #[test]
    fn taints_as_upstream_writes_them() {
        let check = |text: &str, expected: Option<(&str, Option<&str>, &str)>| {
            let got = taint(text).ok();
            let got = got.as_ref().map(|t| (t.key.as_str(), t.value.as_deref(), t.effect.as_str()));
            assert_eq!(got, expected, "{text}");
        };
        check("a=b:NoSchedule", Some(("a", Some("b"), "NoSchedule")));
        check("a:NoExecute", Some(("a", None, "NoExecute")));
        check("a=b", None);
        check("a=b:Never", None);
    }
}
