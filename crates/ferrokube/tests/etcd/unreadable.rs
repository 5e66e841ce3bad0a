//! Objects that cannot be read, while they may be deleted: the errors about them, the right to delete them, and the
//! state afterwards.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Etcd, Server};

use super::{start, start_with};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// Deletes with the option and other fields; returns the answer.
fn delete(server: &Server, path: &str, with: &Value, user: Option<&str>) -> Result<Value> {
    let mut options = with.clone();
    options[OPTION] = true.into();
    let mut request = server.request("DELETE", path).json(&options);
    if let Some(user) = user {
        request = request.header("Impersonate-User", user);
    }
    request.send()?.json()
}

fn get(server: &Server, path: &str) -> Result<Value> {
    server.get(path).send()?.json()
}

/// Checks the code, reason, message and details of an answer, if the expected one has them.
fn check(what: &str, answer: &Value, expected: &Value) -> Result<()> {
    for (key, value) in expected.as_object().context("the expected answer is no object")? {
        ensure!(answer[key] == *value, "{what}: {key} is not {value}: {answer}");
    }
    Ok(())
}

/// The error about the value of a key at a revision.
fn corrupt(key: &str, revision: &str) -> String {
    let why = "it is neither protobuf nor JSON of Kubernetes";
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: object not \
         decodable revision={revision}: {why}"
    )
}

#[test]
fn deleted_while_that_is_allowed() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let a = start_with(&etcd, &["--feature-gates=AllowUnsafeMalformedObjectDeletion=true"])?;
    a.kubectl(&["create", "configmap", "good"])?;
    a.kubectl(&["create", "clusterrole", "reads", "--verb=get,list,delete", "--resource=configmaps"])?;
    a.kubectl(&["create", "clusterrolebinding", "reads", "--clusterrole=reads", "--user=croc"])?;
    for name in ["bad", "worse"] {
        let object = json!({"metadata": {"name": name, "finalizers": ["example.com/held"]}});
        a.create(CONFIGMAPS, &object)?;
    }
    let revision = |name: &str| -> Result<String> {
        let key = format!("/registry/configmaps/default/{name}");
        etcd.etcdctl(&["put", &key, "garbage"])?;
        let got: Value = serde_json::from_str(&etcd.etcdctl(&["get", &key, "-w", "json"])?)?;
        Ok(got["kvs"][0]["mod_revision"].to_string())
    };
    let (bad, worse) = (revision("bad")?, revision("worse")?);
    let (path, good) = (format!("{CONFIGMAPS}/bad"), format!("{CONFIGMAPS}/good"));
    let why = format!("Internal error occurred: {}", corrupt("/configmaps/default/bad", &bad));
    let unread = json!({"code": 500, "reason": "InternalError", "message": why});
    check("get", &get(&a, &path)?, &unread)?;
    check("a deletion as any", &a.request("DELETE", &path).send()?.json()?, &unread)?;
    let cause = |name: &str, revision: &str| {
        let key = format!("/registry/configmaps/default/{name}");
        json!({"reason": "UnexpectedServerResponse", "message": corrupt(&key, revision), "field": key})
    };
    let details = json!({
        "name": "list", "kind": "configmaps", "causes": [cause("bad", &bad), cause("worse", &worse)],
    });
    let message = "failed to read one or more configmaps from the storage";
    let list = json!({"code": 500, "reason": "StorageReadError", "message": message, "details": details});
    check("list", &get(&a, CONFIGMAPS)?, &list)?;
    let none = json!({});
    let taken = json!({"code": 409, "reason": "AlreadyExists"});
    let again = a.request("POST", CONFIGMAPS).json(&json!({"metadata": {"name": "bad"}}));
    check("create", &again.send()?.json()?, &taken)?;

    let alone = json!({"code": 422, "message": format!(
        "DeleteOptions.meta.k8s.io \"\" is invalid: {OPTION}: Invalid value: true: cannot be set together with .gracePeriodSeconds"
    )});
    check("with more", &delete(&a, &path, &json!({"gracePeriodSeconds": 0}), None)?, &alone)?;
    let each = json!({"code": 422, "message": format!(
        "DeleteOptions.meta.k8s.io \"\" is invalid: {OPTION}: Invalid value: true: is not allowed with DELETECOLLECTION, try again after removing the option"
    )});
    check("a collection", &delete(&a, CONFIGMAPS, &none, None)?, &each)?;
    let sound = json!({"code": 422, "reason": "Invalid", "message": format!(
        "configmaps \"good\" is invalid: {OPTION}: Invalid value: true: is exclusively used to delete corrupt object(s), try again by removing this option"
    )});
    check("a readable object", &delete(&a, &good, &none, None)?, &sound)?;
    let forbidden = json!({"code": 403, "reason": "Forbidden", "message":
        "configmaps \"bad\" is forbidden: not permitted to do \"unsafe-delete-ignore-read-errors\", reason: "
    });
    check("without the verb", &delete(&a, &path, &none, Some("croc"))?, &forbidden)?;
    let wrapped = json!({"code": 500, "message": format!(
        "Internal error occurred: no unsafe deleter provided, can not honor {OPTION}"
    )});
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/reads";
    check("of a storage that upstream wraps", &delete(&a, role, &none, None)?, &wrapped)?;

    a.kubectl(&[
        "create",
        "clusterrole",
        "unsafe",
        "--verb=unsafe-delete-ignore-read-errors",
        "--resource=configmaps",
    ])?;
    a.kubectl(&["create", "clusterrolebinding", "unsafe", "--clusterrole=unsafe", "--user=croc"])?;
    for name in ["bad", "worse"] {
        let done = json!({"status": "Success", "code": 200, "details": {"name": name, "kind": "ConfigMap"}});
        let path = format!("{CONFIGMAPS}/{name}");
        check(name, &delete(&a, &path, &none, Some("croc"))?, &done)?;
        check(name, &get(&a, &path)?, &json!({"code": 404}))?;
    }
    let names = a.kubectl(&["get", "configmaps", "-o", "name"])?;
    ensure!(names.contains("configmap/good") && !names.contains("bad"), "{names}");
    let keys = etcd.etcdctl(&["get", "/registry/configmaps/default/", "--prefix", "--keys-only"])?;
    ensure!(!keys.contains("bad") && !keys.contains("worse"), "{keys}");
    Ok(())
}

/// While the gate is off the option has no effect.
#[test]
fn not_deleted_otherwise() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let a = start(&etcd)?;
    etcd.etcdctl(&["put", "/registry/configmaps/default/bad", "garbage"])?;
    let unread = json!({"code": 500, "message": "it is neither protobuf nor JSON of Kubernetes"});
    let path = format!("{CONFIGMAPS}/bad");
    check("get", &get(&a, &path)?, &unread)?;
    check("delete", &delete(&a, &path, &json!({}), None)?, &unread)?;
    a.kubectl(&["create", "configmap", "good"])?;
    let good = format!("{CONFIGMAPS}/good");
    let dry = delete(&a, &good, &json!({"dryRun": ["All"]}), None)?;
    check("a readable object", &dry, &json!({"status": "Success"}))?;
    delete(&a, &good, &json!({}), None)?;
    check("get", &get(&a, &good)?, &json!({"code": 404}))
}
