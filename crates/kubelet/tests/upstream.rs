//! Upstream's tests of its kubelet, each with our judgement (`upstream.tsv`): `here`, where its cases are carried over as data
//! and in which of our tests; `part`, where some of them are; `no`, and why there is nothing to carry.

use std::collections::BTreeMap;
use std::path::Path;

const UPSTREAM: &str = include_str!("upstream.tsv");

/// The tests of upstream's packages: how many there are, how many are carried over, and how many are in part.
const COUNTS: &[(&str, [usize; 3])] = &[
    (".", [155, 38, 7]),
    ("allocation", [12, 3, 1]),
    ("apis", [26, 1, 0]),
    ("cadvisor", [5, 0, 0]),
    ("certificate", [9, 0, 0]),
    ("checkpointmanager", [1, 0, 0]),
    ("client", [6, 0, 0]),
    ("clustertrustbundle", [6, 1, 0]),
    ("cm", [34, 2, 1]),
    ("cm/admission", [1, 0, 0]),
    ("cm/containermap", [2, 0, 0]),
    ("cm/cpumanager", [75, 31, 0]),
    ("cm/devicemanager", [40, 10, 0]),
    ("cm/dra", [52, 8, 2]),
    ("cm/memorymanager", [28, 16, 0]),
    ("cm/qos", [1, 0, 0]),
    ("cm/topologymanager", [54, 23, 0]),
    ("config", [37, 13, 5]),
    ("configmap", [1, 0, 0]),
    ("container", [55, 9, 0]),
    ("envvars", [1, 1, 0]),
    ("events", [4, 4, 0]),
    ("eviction", [49, 30, 0]),
    ("images", [57, 32, 5]),
    ("kubeletconfig", [2, 0, 0]),
    ("kuberuntime", [129, 40, 6]),
    ("lifecycle", [18, 7, 1]),
    ("logs", [7, 5, 0]),
    ("managed", [5, 0, 0]),
    ("metrics", [7, 0, 0]),
    ("network", [7, 6, 1]),
    ("nodeshutdown", [15, 3, 0]),
    ("nodestatus", [11, 1, 4]),
    ("oom", [3, 3, 0]),
    ("pleg", [14, 0, 0]),
    ("pluginmanager", [25, 0, 0]),
    ("pod", [6, 0, 0]),
    ("podcertificate", [3, 2, 0]),
    ("preemption", [5, 4, 0]),
    ("prober", [35, 4, 5]),
    ("qos", [1, 1, 0]),
    ("runtimeclass", [1, 0, 0]),
    ("secret", [1, 0, 0]),
    ("server", [48, 7, 0]),
    ("sharedcpus", [1, 0, 0]),
    ("stats", [27, 1, 0]),
    ("status", [41, 6, 7]),
    ("sysctl", [4, 4, 0]),
    ("token", [6, 0, 1]),
    ("types", [19, 2, 1]),
    ("userns", [14, 2, 0]),
    ("util", [63, 0, 0]),
    ("volumemanager", [69, 6, 0]),
    ("watchdog", [2, 0, 0]),
    ("winstats", [18, 0, 0]),
];

/// A package in short: the first folder, two for those that are large.
fn package(file: &str) -> String {
    let folders: Vec<&str> =
        file.rsplit_once('/').map_or(vec![], |(folders, _)| folders.split('/').collect());
    match folders.as_slice() {
        [] => ".".into(),
        ["cm", part, ..] => format!("cm/{part}"),
        [first, ..] => (*first).into(),
    }
}

#[test]
fn each_of_upstreams_tests_has_a_judgement() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let mut seen = Vec::new();
    for line in UPSTREAM.lines() {
        let [file, test, verdict, note] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}: file, test, judgement, and where or why not")
        };
        seen.push((file, test));
        let count = counts.entry(package(file)).or_default();
        count[0] += 1;
        match verdict {
            "here" => count[1] += 1,
            "part" => count[2] += 1,
            "no" => {
                assert!(note.len() > 6, "{line}: why not");
                continue;
            }
            other => panic!("{line}: {other} is no judgement"),
        }
        let (place, own) = note.split_once(' ').unwrap_or_else(|| panic!("{line}: file and test"));
        let source = sources
            .entry(place.to_owned())
            .or_insert_with(|| std::fs::read_to_string(crates.join(place)).unwrap_or_default());
        let found = source.contains(&format!("fn {own}()"));
        assert!(found, "{line}: there is no such test");
    }
    assert!(seen.is_sorted() && seen.windows(2).all(|two| two[0] != two[1]), "sorted, and each once");
    let counts: Vec<_> = counts.iter().map(|(package, of)| (package.as_str(), *of)).collect();
    assert_eq!(counts, COUNTS);
}
