//! The answer to a call, in the form of the version that the configuration has.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CniError, VERSIONS};
use crate::attachment::Attachment;

/// The answer of the agent to the plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The JSON to print; null for nothing.
    Done(Value),
    /// The error to print.
    Failed(CniError),
}

/// The answer to VERSION.
pub(crate) fn version_result(version: &str) -> Value {
    json!({ "cniVersion": version, "supportedVersions": VERSIONS })
}

/// The answer to ADD.
pub(crate) fn add_result(version: &str, attachment: &Attachment, host_link: &str) -> Value {
    let named = version.starts_with("0.");
    let tells_mtu = version == "1.1.0";
    let mut interfaces = [
        json!({ "name": host_link, "mac": text(attachment.host_hardware()) }),
        json!({
            "name": attachment.interface,
            "mac": text(attachment.hardware()),
            "sandbox": attachment.namespace,
        }),
    ];
    if tells_mtu {
        for interface in &mut interfaces {
            interface["mtu"] = attachment.mtu.into();
        }
    }
    let mut ips = Vec::new();
    let mut routes = Vec::new();
    for own in &attachment.addresses {
        let v4 = own.address.is_ipv4();
        let mut ip = json!({
            "address": format!("{}/{}", own.address, if v4 { 32 } else { 128 }),
            "gateway": own.gateway,
            "interface": 1,
        });
        if named {
            ip["version"] = if v4 { "4" } else { "6" }.into();
        }
        ips.push(ip);
        routes.push(json!({ "dst": if v4 { "0.0.0.0/0" } else { "::/0" }, "gw": own.gateway }));
    }
    json!({ "cniVersion": version, "interfaces": interfaces, "ips": ips, "routes": routes, "dns": {} })
}

/// Whether a result that the runtime kept names all addresses of an attachment.
pub(crate) fn same_addresses(previous: &Value, attachment: &Attachment) -> bool {
    let kept: Vec<IpAddr> = previous["ips"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok())
        .collect();
    attachment.addresses.iter().all(|own| kept.contains(&own.address))
}

fn text(hardware: [u8; 6]) -> String {
    hardware.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::tests::example;

    #[test]
    fn forms_of_versions() {
        let attachment = example();
        let result = |version| add_result(version, &attachment, "fk-000000000002");
        let new = result("1.1.0");
        assert_eq!(
            new["ips"],
            json!([
                {"address": "10.244.0.2/32", "gateway": "10.244.0.1", "interface": 1},
                {"address": "fd00::2/128", "gateway": "fd00::1", "interface": 1},
            ])
        );
        assert_eq!(
            new["routes"],
            json!([{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}, {"dst": "::/0", "gw": "fd00::1"}])
        );
        assert_eq!(
            new["interfaces"],
            json!([
                {"name": "fk-000000000002", "mac": "0a:58:0a:f4:00:01", "mtu": 1500},
                {"name": "eth0", "mac": "0a:58:0a:f4:00:02", "sandbox": "/run/netns/x", "mtu": 1500},
            ])
        );
        let middle = result("1.0.0");
        assert_eq!((&middle["cniVersion"], &middle["interfaces"][0]["mtu"]), (&json!("1.0.0"), &Value::Null));
        let old = result("0.3.1");
        assert_eq!((&old["ips"][0]["version"], &old["ips"][1]["version"]), (&json!("4"), &json!("6")));
        assert!(same_addresses(&old, &attachment));
        assert!(!same_addresses(&json!({"ips": [{"address": "10.244.0.2/32"}]}), &attachment));
        assert!(!same_addresses(&json!(3), &attachment));
        assert_eq!(version_result("0.4.0")["supportedVersions"].as_array().unwrap().len(), 5);
    }
}
