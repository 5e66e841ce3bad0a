//! Results of plugins; pure.

use std::net::IpAddr;

use serde_json::Value;

/// The addresses of a Pod's interface by a plugin's result, the primary one first: an IPv4 address if there is one.
pub(super) fn addresses(result: &Value, interface: &str) -> Vec<IpAddr> {
    let list = |key: &str| result[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |text: &Value| text.as_str()?.split('/').next()?.parse::<IpAddr>().ok();
    let interfaces = list("interfaces");
    // An address of an interface outside the Pod is not the Pod's.
    let is_own =
        |ip: &Value| match ip["interface"].as_u64().and_then(|n| interfaces.get(usize::try_from(n).ok()?)) {
            Some(of) => of["name"] == interface && of["sandbox"].as_str().is_some_and(|s| !s.is_empty()),
            None => true,
        };
    let mut all: Vec<IpAddr> =
        list("ips").iter().filter(|ip| is_own(ip)).filter_map(|ip| read(&ip["address"])).collect();
    // The form before version 0.3.
    all.extend(["ip4", "ip6"].iter().filter_map(|key| read(&result[*key]["ip"])));
    if let Some(v4) = all.iter().position(IpAddr::is_ipv4) {
        let first = all.remove(v4);
        all.insert(0, first);
    }
    all
}

/// An error as a plugin prints it; the text itself if it is none.
pub(super) fn failure(plugin: &str, command: &str, output: &[u8], errors: &[u8]) -> String {
    let said: Option<Value> = serde_json::from_slice(output).ok();
    let text = |key: &str| said.as_ref().and_then(|said| said[key].as_str()).unwrap_or_default().to_owned();
    let (msg, details) = (text("msg"), text("details"));
    let why = match (msg.is_empty(), details.is_empty()) {
        (false, false) => format!("{msg}; {details}"),
        (false, true) => msg,
        (true, _) => {
            let raw = if output.is_empty() { errors } else { output };
            String::from_utf8_lossy(&raw[..raw.len().min(1024)]).trim().to_owned()
        }
    };
    format!("plugin type={plugin:?} failed ({}): {why}", command.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_results() {
        let check = |result: Value, expected: &[&str]| {
            let got: Vec<String> = addresses(&result, "eth0").iter().map(ToString::to_string).collect();
            assert_eq!(got, expected, "{result}");
        };
        let interfaces = json!([{"name": "veth1"}, {"name": "eth0", "sandbox": "/run/netns/a"}]);
        check(
            json!({"interfaces": interfaces, "ips": [
                {"address": "fd00::2/64", "interface": 1},
                {"address": "10.0.0.1/24", "interface": 0},
                {"address": "10.0.0.2/24", "interface": 1},
                {"address": "10.0.0.3/24"}]}),
            &["10.0.0.2", "fd00::2", "10.0.0.3"],
        );
        check(json!({"ip4": {"ip": "10.0.0.2/24"}, "ip6": {"ip": "fd00::1/64"}}), &["10.0.0.2", "fd00::1"]);
        check(json!({"ips": [{"address": "fd00::1/64"}, {"address": "x"}, 3]}), &["fd00::1"]);
        check(json!(null), &[]);
    }

    #[test]
    fn failures() {
        let check = |output: &str, errors: &str, expected: &str| {
            let got = failure("ptp", "ADD", output.as_bytes(), errors.as_bytes());
            assert_eq!(got, format!("plugin type=\"ptp\" failed (add): {expected}"));
        };
        check(r#"{"code":11,"msg":"later","details":"why"}"#, "", "later; why");
        check(r#"{"code":11,"msg":"later"}"#, "", "later");
        check("boom\n", "x", "boom");
        check("", "panic", "panic");
    }
}
