//! Clients that fill the store: writes beyond its quota are refused.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::Server;

use crate::hostile::alive::serves_others;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, size: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "x".repeat(size)}})
}

fn metric(server: &Server, name: &str) -> Result<f64> {
    let text = server.get("/metrics").send()?.expect(200)?.text();
    let line = text.lines().find(|l| l.starts_with(name) && !l.starts_with('#'));
    let value = line.and_then(|l| l.rsplit(' ').next()).map(str::parse::<f64>);
    value.transpose()?.ok_or_else(|| anyhow::anyhow!("no {name}"))
}

#[test]
fn a_full_store_still_serves() -> Result<()> {
    let mut server = Server::start(&["--quota-backend-bytes=2000000"])?;
    let quota = metric(&server, "etcd_server_quota_backend_bytes")?;
    ensure!((quota - 2_000_000.0).abs() < 1.0, "{quota}");
    let mut count = 0;
    let refused = loop {
        let answer = server.request("POST", MAPS).json(&map(&format!("m{count}"), 100_000)).send()?;
        if answer.status != 201 {
            break answer;
        }
        count += 1;
        ensure!(count < 20, "there is no limit");
    };
    ensure!(refused.status == 500, "{} {}", refused.status, refused.text());
    let status = refused.json()?;
    ensure!(status["message"] == "etcdserver: mvcc: database space exceeded", "{status}");
    ensure!(status["reason"].is_null() && status["code"] == 500, "{status}");
    let used = metric(&server, "etcd_mvcc_db_total_size_in_use_in_bytes")?;
    ensure!(used > 1_900_000.0 - 100_000.0 && used <= 2_000_000.0, "{used}");
    serves_others(&server)?;
    server.get(&format!("{MAPS}/m0")).send()?.expect(200)?;
    // A write of the same size is taken, and so is one that begins a deletion.
    let mut same = map("m0", 100_000);
    same["data"]["k"] = "y".repeat(100_000).into();
    server.request("PUT", &format!("{MAPS}/m0")).json(&same).send()?.expect(200)?;
    let larger = server.request("PUT", &format!("{MAPS}/m0")).json(&map("m0", 400_000)).send()?;
    ensure!(larger.status == 500, "{} {}", larger.status, larger.text());
    server.restart()?;
    let again = server.request("POST", MAPS).json(&map("late", 100_000)).send()?;
    ensure!(again.status == 500, "{} {}", again.status, again.text());
    server.request("DELETE", &format!("{MAPS}/m1?propagationPolicy=Foreground")).send()?.expect(200)?;
    let clear = json!({"metadata": {"finalizers": null}});
    server.patch(&format!("{MAPS}/m1"), "merge", &clear).send()?.expect(200)?;
    server.request("DELETE", &format!("{MAPS}/m2")).send()?.expect(200)?;
    server.create(MAPS, &map("late", 100_000))?;
    Ok(())
}
