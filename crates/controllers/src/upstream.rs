//! Upstream's test functions of controllers (`pkg/controller/**/*_test.go` of v1.36.2), and where the cases of each are
//! tested here.
//!
//! `upstream.tsv` has a line a function: its package below `pkg/controller`, its name, and the place of its cases, a file and
//! a test; or the reason for which it has none, one of [`REASONS`]. Files are below this crate's `src`, or below the other
//! crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = include_str!("upstream.tsv");

/// The reasons for which a function's cases are not carried over.
const REASONS: [(&str, &str); 9] = [
    ("cloud", "a controller that works for clouds' own allocators"),
    ("debug", "a drawing of the garbage collector's graph, for people who debug it"),
    ("differs", "a deviation, which is marked DIFFERENCE where it is made"),
    ("fake", "the helpers of upstream's own tests"),
    (
        "flags",
        "the defaults of a configuration object that no client sends; the flags' own are tested where they are read",
    ),
    ("fork", "a change of the distribution whose tree the list was made from"),
    (
        "queue",
        "upstream's queues, informers, timers and handlers; those of the client crate and of tokio have their own tests",
    ),
    ("refused", "objects that the API server refuses"),
    ("state", "what upstream keeps between looks; here each look works it out from the objects"),
];

/// The numbers of functions whose cases are tested here, and of those that are not, by controller: the first part of the
/// package, or the first two of volumes' and of common parts.
const COUNTS: [(&str, usize, usize); 47] = [
    (".", 19, 1),
    ("apis", 0, 2),
    ("bootstrap", 13, 0),
    ("certificates", 16, 0),
    ("clusterroleaggregation", 1, 0),
    ("cronjob", 11, 0),
    ("daemon", 80, 3),
    ("deployment", 53, 0),
    ("devicetainteviction", 6, 1),
    ("disruption", 24, 0),
    ("endpoint", 43, 3),
    ("endpointslice", 17, 0),
    ("endpointslicemirroring", 8, 0),
    ("garbagecollector", 14, 3),
    ("history", 8, 6),
    ("job", 64, 3),
    ("namespace", 9, 0),
    ("nodeipam", 18, 4),
    ("nodelifecycle", 25, 1),
    ("podautoscaler", 192, 0),
    ("podgc", 5, 0),
    ("replicaset", 28, 3),
    ("replication", 3, 0),
    ("resourceclaim", 6, 1),
    ("resourcepoolstatusrequest", 10, 1),
    ("resourcequota", 3, 0),
    ("scheduling", 6, 1),
    ("serviceaccount", 3, 1),
    ("servicecidrs", 4, 0),
    ("statefulset", 96, 6),
    ("storageversiongc", 4, 0),
    ("storageversionmigrator", 4, 0),
    ("tainteviction", 12, 4),
    ("ttl", 3, 0),
    ("ttlafterfinished", 1, 0),
    ("util/consistency", 0, 8),
    ("util/protectionutil", 8, 0),
    ("util/selectors", 0, 4),
    ("validatingadmissionpolicystatus", 1, 1),
    ("volume/attachdetach", 27, 67),
    ("volume/ephemeral", 1, 0),
    ("volume/expand", 1, 0),
    ("volume/persistentvolume", 26, 2),
    ("volume/pvcprotection", 1, 0),
    ("volume/pvprotection", 1, 0),
    ("volume/selinuxwarning", 9, 0),
    ("volume/vacprotection", 1, 0),
];

fn rows() -> impl Iterator<Item = [&'static str; 3]> {
    LIST.lines().map(|line| {
        let mut fields = line.split('\t');
        let row = [(); 3].map(|()| fields.next().unwrap_or_default());
        assert!(fields.next().is_none() && row.iter().all(|field| !field.is_empty()), "{line}");
        row
    })
}

/// The file of a place.
fn file(of: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = source.join("src").join(of);
    if own.exists() { own } else { source.join("..").join(of) }
}

/// Each function stands there once, and its place exists, or its reason.
#[test]
fn every_function_has_a_place_or_a_reason() {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut used = BTreeSet::new();
    for [package, function, place] in rows() {
        assert!(function.starts_with("Test"), "{function}");
        assert!(seen.insert((package, function)), "{package} {function} stands there twice");
        let Some((of, test)) = place.split_once("::") else {
            assert!(REASONS.iter().any(|r| r.0 == place), "{package} {function}: {place} is no reason");
            used.insert(place);
            continue;
        };
        let text = files.entry(of).or_insert_with(|| fs::read_to_string(file(of)).unwrap_or_default());
        assert!(text.contains(&format!("fn {test}(")), "{package} {function}: there is no {place}");
    }
    assert_eq!(used.into_iter().collect::<Vec<_>>(), REASONS.map(|r| r.0));
}

#[test]
fn numbers_of_functions() {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for [package, _, place] in rows() {
        let parts = if package.starts_with("volume/") || package.starts_with("util/") { 2 } else { 1 };
        let name = package.split('/').take(parts).collect::<Vec<_>>().join("/");
        let (here, not) = counts.entry(name).or_default();
        if place.contains("::") { *here += 1 } else { *not += 1 }
    }
    let counts: Vec<_> = counts.iter().map(|(name, (here, not))| (name.as_str(), *here, *not)).collect();
    assert_eq!(counts, COUNTS);
    let sum = |of: fn(&(&str, usize, usize)) -> usize| COUNTS.iter().map(of).sum::<usize>();
    assert_eq!((sum(|c| c.1), sum(|c| c.2)), (885, 126));
}
