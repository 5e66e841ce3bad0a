//! The Accept header of requests: what a client takes, and what it wants most.

use crate::go;

/// A clause of an Accept header.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause<'a> {
    /// The type, `*` for any.
    pub kind: &'a str,
    /// The subtype, `*` for any.
    pub sub: &'a str,
    /// The parameters but for the weight.
    pub params: Vec<(&'a str, &'a str)>,
    weight: f32,
}

impl Clause<'_> {
    /// Whether a media type (`application/json`) is one of those that the clause names.
    pub fn takes(&self, media_type: &str) -> bool {
        let (kind, sub) = media_type.split_once('/').unwrap_or((media_type, ""));
        self.kind == kind && (self.sub == sub || self.sub == "*") || self.kind == "*" && self.sub == "*"
    }
}

/// The clauses of an Accept header, what is wanted most first; those of equal weight in their order, as upstream's
/// parser has them.
pub fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut all: Vec<Clause<'_>> = header
        .split(',')
        .filter_map(|part| {
            let mut bits = part.split(';').map(str::trim);
            let media = bits.next()?;
            let (kind, sub) = if media == "*" { ("*", "*") } else { media.split_once('/')? };
            let mut clause = Clause { kind: kind.trim(), sub: sub.trim(), params: Vec::new(), weight: 1.0 };
            for bit in bits {
                let Some((key, value)) = bit.split_once('=') else { continue };
                let (key, value) = (key.trim(), value.trim().trim_matches('"'));
                if key == "q" {
                    clause.weight = value.parse().unwrap_or(1.0);
                } else {
                    clause.params.push((key, value));
                }
            }
            Some(clause)
        })
        .collect();
    all.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    all
}

/// Whether JSON is indented: if the query's `pretty` says so, or for programs with which people look.
pub fn is_for_people(pretty: Option<&str>, user_agent: &str) -> bool {
    match pretty {
        Some(said) if !said.is_empty() => go::parse_bool(said) == Some(true),
        _ => ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| user_agent.starts_with(program)),
    }
}
