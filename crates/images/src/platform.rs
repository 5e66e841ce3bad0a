//! The choice of a manifest by platform, by containerd's rules (`platforms.Only`). Pure.

use crate::settings::Platform;

impl Platform {
    /// This machine's platform.
    pub fn host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Self::new("linux", architecture, variant)
    }

    /// A platform, with the names that are other words for the same.
    pub fn new(os: &str, architecture: &str, variant: &str) -> Self {
        let (os, architecture, variant) =
            (os.to_ascii_lowercase(), architecture.to_ascii_lowercase(), variant.to_ascii_lowercase());
        let os = if os == "macos" { "darwin".to_owned() } else { os };
        let (architecture, variant) = match (&*architecture, &*variant) {
            ("i386" | "386", _) => ("386", String::new()),
            ("x86_64" | "x86-64" | "amd64", v) => {
                ("amd64", if v == "v1" { String::new() } else { v.to_owned() })
            }
            ("aarch64" | "arm64", v) => (
                "arm64",
                match v {
                    "8" | "v8" | "v8.0" => String::new(),
                    "9" | "9.0" | "v9.0" => "v9".to_owned(),
                    v => v.to_owned(),
                },
            ),
            ("armhf", _) => ("arm", "v7".to_owned()),
            ("armel", _) => ("arm", "v6".to_owned()),
            ("arm", v) => (
                "arm",
                match v {
                    "" | "7" => "v7".to_owned(),
                    "5" | "6" | "8" => format!("v{v}"),
                    v => v.to_owned(),
                },
            ),
            (other, v) => (other, v.to_owned()),
        };
        Self { os, architecture: architecture.to_owned(), variant }
    }

    /// The platforms whose programs run on this one, the best first.
    pub(crate) fn runs(&self) -> Vec<Self> {
        let own = Self::new(&self.os, &self.architecture, &self.variant);
        let with = |architecture: &str, variant: &str| Self::new(&own.os, architecture, variant);
        let number = |text: &str| text.trim_start_matches('v').parse::<u32>().ok().filter(|n| *n < 100);
        let mut list = vec![own.clone()];
        match &*own.architecture {
            "amd64" => {
                let newest = number(&own.variant).unwrap_or(1);
                list.extend((1..newest).rev().map(|v| with("amd64", &format!("v{v}"))));
                list.push(with("386", ""));
            }
            "arm" => list.extend(older_arms(&own.variant).map(|v| with("arm", &v))),
            "arm64" => {
                let variant = if own.variant.is_empty() { "v8" } else { &own.variant };
                let (major, minor) = variant.split_once('.').unwrap_or((variant, "0"));
                let (mut major, mut minor) = (number(major).unwrap_or(8), number(minor).unwrap_or(0));
                let name = |major: u32, minor: u32| match minor {
                    0 => format!("v{major}"),
                    minor => format!("v{major}.{minor}"),
                };
                if major == 9 {
                    list.extend((0..minor).rev().map(|m| with("arm64", &name(9, m))));
                    // v9.0 has all of v8.5.
                    (major, minor) = (8, minor + 5);
                    list.push(with("arm64", &name(major, minor)));
                }
                if major == 8 {
                    list.extend((0..minor).rev().map(|m| with("arm64", &name(8, m))));
                }
                // As upstream has it: only v8.x is armv8 too, and v9 itself counts as a version of arm.
                let arm = if variant == "v9" { "v9".to_owned() } else { "v8".to_owned() };
                list.push(with("arm", &arm));
                list.extend(older_arms(&arm).map(|v| with("arm", &v)));
            }
            _ => {}
        }
        list
    }

    /// How well programs for `other` suit this machine: 0 is best, `None` that they do not run.
    pub fn rank(&self, other: &Self) -> Option<usize> {
        self.runs().iter().position(|p| p == other)
    }
}

fn older_arms(variant: &str) -> impl Iterator<Item = String> {
    let newest = variant.trim_start_matches('v').parse::<u32>().ok().filter(|n| *n < 100).unwrap_or(5);
    (5..newest).rev().map(|v| format!("v{v}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Platform {
        let mut parts = text.split('/');
        let mut next = || parts.next().unwrap_or_default();
        Platform::new(next(), next(), next())
    }

    /// containerd's cases (`platforms/compare_test.go`, `TestOnly`).
    fn check(machine: &str, runs: &[&str], not: &[&str]) {
        let machine = read(machine);
        for other in runs {
            assert!(machine.rank(&read(other)).is_some(), "{machine:?} runs {other}");
        }
        for other in not {
            assert!(machine.rank(&read(other)).is_none(), "{machine:?} does not run {other}");
        }
    }

    #[test]
    fn containerds_cases() {
        let other = ["windows/amd64", "windows/arm"];
        check(
            "linux/amd64",
            &["linux/amd64", "linux/386"],
            &["linux/amd64/v2", "linux/arm/v7", "linux/arm64"],
        );
        check("linux/amd64", &[], &other);
        check(
            "linux/amd64/v2",
            &["linux/amd64", "linux/amd64/v1", "linux/amd64/v2", "linux/386"],
            &["linux/amd64/v3", "linux/amd64/v4", "linux/arm/v7", "linux/arm64"],
        );
        check("linux/386", &["linux/386"], &["linux/amd64", "linux/arm/v7", "linux/arm64"]);
        check(
            "linux/arm/v8",
            &["linux/arm", "linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/arm/v8"],
            &["linux/amd64", "linux/arm/v4", "linux/arm64"],
        );
        check(
            "linux/arm/v7",
            &["linux/arm", "linux/arm/v5", "linux/arm/v6", "linux/arm/v7"],
            &["linux/amd64", "linux/arm/v4", "linux/arm/v8", "linux/arm64"],
        );
        check(
            "linux/arm/v6",
            &["linux/arm/v5", "linux/arm/v6"],
            &["linux/arm", "linux/arm/v4", "linux/arm/v7"],
        );
        check("linux/arm/v5", &["linux/arm/v5"], &["linux/arm", "linux/arm/v4", "linux/arm/v6"]);
        check("linux/arm/v4", &["linux/arm/v4"], &["linux/arm", "linux/arm/v5", "linux/arm/v6"]);
        let arms =
            ["linux/arm", "linux/arm/v5", "linux/arm/v6", "linux/arm/v7", "linux/arm/v8", "linux/arm64"];
        check("linux/arm64", &arms, &["linux/arm/v4", "linux/arm/v9", "linux/arm64/v9", "windows/amd64"]);
        check("linux/arm64", &["linux/arm64/v8"], &[]);
        check("linux/arm64/v8.1", &arms, &["linux/arm/v9", "linux/arm64/v9"]);
        check("linux/arm64/v8.1", &["linux/arm64/v8", "linux/arm64/v8.1"], &["linux/arm64/v8.2"]);
        check("linux/arm64/v9", &arms, &["linux/arm/v4", "linux/arm64/v8.6"]);
        for v in ["v8", "v8.1", "v8.2", "v8.3", "v8.4", "v8.5", "v9", "v9.0"] {
            check("linux/arm64/v9", &[&format!("linux/arm64/{v}")], &[]);
        }
    }

    #[test]
    fn its_own_platform_is_best() {
        let machine = read("linux/arm64");
        let ranks = ["linux/arm64", "linux/arm/v8", "linux/arm/v7"].map(|p| machine.rank(&read(p)));
        assert!(ranks[0] < ranks[1] && ranks[1] < ranks[2], "{ranks:?}");
        assert_eq!(read("linux/x86_64"), read("Linux/amd64/v1"));
        assert_eq!(Platform::host().rank(&Platform::host().runs()[0]), Some(0));
    }
}
