//! The answers of lists and watches about revisions, with upstream's words.

use api::Status;
use client::{EventKind, Verb};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::testing::{Cluster, call, config_map};

const MAPS: &str = "-/v1/configmaps/ns";

impl Cluster {
    async fn list(&self, query: &str) -> Result<Value, Status> {
        self.call(Verb::List, &format!("{MAPS}?{query}"), Value::Null).await
    }
    async fn create(&self, name: &str) -> u64 {
        revision(&self.call(Verb::Create, MAPS, config_map(name, name)).await.unwrap())
    }
    async fn label(&self, name: &str, value: &str) -> u64 {
        let patch = json!({"metadata": {"labels": {"app": value}}});
        revision(&self.call(Verb::MergePatch, &format!("{MAPS}/{name}"), patch).await.unwrap())
    }
    async fn delete(&self, name: &str) {
        self.call(Verb::Delete, &format!("{MAPS}/{name}"), Value::Null).await.unwrap();
    }
}

fn revision(of: &Value) -> u64 {
    of["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

/// `rv`, `continue`, `remainingItemCount` of a list.
fn meta(list: &Value) -> (u64, bool, Option<u64>) {
    let meta = &list["metadata"];
    (revision(list), meta["continue"].is_string(), meta["remainingItemCount"].as_u64())
}

#[tokio::test]
async fn a_list_is_of_the_revision_that_was_asked_for() {
    let c = Cluster::new();
    let empty = revision(&c.list("").await.unwrap());
    let a = c.create("a").await;
    assert!(a > empty, "an empty list has the store's revision");
    let b = c.create("b").await;
    let n = c.create("c").await;
    c.delete("c").await;
    let last = revision(&c.list("").await.unwrap());
    assert!(last > n, "a deletion has a revision");
    let none = revision(&c.call(Verb::List, "-/v1/pods/ns", Value::Null).await.unwrap());
    assert_eq!(none, last, "and every list has the newest one, whatever it is of");
    let list = async |query: String| {
        let list = c.list(&query).await.unwrap();
        (revision(&list), names(&list).join(" "))
    };
    let all = || (last, "a b".to_owned());
    for query in [
        String::new(),
        "resourceVersion=".into(),
        "resourceVersion=0".into(),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".into(),
        format!("resourceVersion={a}"),
        format!("resourceVersion={a}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={last}&resourceVersionMatch=Exact"),
        format!("resourceVersion={a}&resourceVersionMatch=NotOlderThan&limit=5"),
    ] {
        assert_eq!(list(query.clone()).await, all(), "{query}");
    }
    assert_eq!(list(format!("resourceVersion={a}&resourceVersionMatch=Exact")).await, (a, "a".into()));
    assert_eq!(list(format!("resourceVersion={n}&resourceVersionMatch=Exact")).await, (n, "a b c".into()));
    // The first form of this: a page of a revision is of exactly that one.
    assert_eq!(list(format!("resourceVersion={b}&limit=5")).await, (b, "a b".into()));
    assert_eq!(list(format!("resourceVersion={n}&limit=5")).await, (n, "a b c".into()));
}

#[tokio::test]
async fn what_no_list_can_mean_is_refused() {
    let c = Cluster::new();
    c.create("a").await;
    c.create("b").await;
    let page = c.list("limit=1").await.unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let invalid = |why: &str| (422, format!("ListOptions.meta.k8s.io \"\" is invalid: {why}"));
    let matching = |why: &str| invalid(&format!("resourceVersionMatch: {why}"));
    let bad = |why: &str| (400, why.to_owned());
    for (query, expected) in [
        (
            "resourceVersionMatch=Exact".to_owned(),
            matching("Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact".into(),
            matching("Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""),
        ),
        (
            "resourceVersion=1&resourceVersionMatch=Newest".into(),
            matching("Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        ),
        (
            format!("resourceVersion=1&resourceVersionMatch=NotOlderThan&continue={token}"),
            matching("Forbidden: resourceVersionMatch is forbidden when continue is provided"),
        ),
        (
            "sendInitialEvents=true".into(),
            invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        (
            format!("resourceVersion=1&continue={token}"),
            bad("specifying resource version is not allowed when using continue"),
        ),
        ("continue=e30".into(), bad("invalid continue token: continue key is not valid: ")),
    ] {
        let refused = c.list(&query).await.unwrap_err();
        assert_eq!(refused.code, expected.0, "{query}: {refused}");
        assert!(refused.message.starts_with(&expected.1), "{query}: {refused}");
    }
    for bad in ["x", "-1", "1.5", "18446744073709551616"] {
        let refused = c.list(&format!("resourceVersion={bad}")).await.unwrap_err();
        assert_eq!(refused.code, 400, "{bad}: {refused}");
        assert!(refused.message.contains("invalid resource version"), "{refused}");
    }
}

#[tokio::test]
async fn the_future_is_waited_for_three_seconds() {
    let c = Cluster::new();
    let now = c.create("a").await;
    let future = now + 5;
    let refused = async |query: &str| {
        let begun = std::time::Instant::now();
        let refused = c.list(&format!("resourceVersion={future}{query}")).await.unwrap_err();
        // The store's writer is a thread: no clock but the real one fits both.
        assert!(begun.elapsed().as_secs() >= 3, "{query}");
        assert_eq!((refused.code, refused.reason.as_str()), (504, "Timeout"));
        let message = format!("Timeout: Too large resource version: {future}, current: {now}");
        assert_eq!(refused.message, message);
        let details = refused.details.unwrap();
        let cause = &details.causes[0];
        let expected = ("ResourceVersionTooLarge", "Too large resource version");
        assert_eq!((cause.reason.as_str(), cause.message.as_str()), expected);
        assert_eq!(details.retry_after_seconds, 1);
    };
    tokio::join!(
        refused(""),
        refused("&resourceVersionMatch=NotOlderThan"),
        refused("&resourceVersionMatch=Exact"),
        refused("&limit=1")
    );
    let query = format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", now + 1);
    let (list, _) = tokio::join!(c.list(&query), c.create("b"));
    assert_eq!(names(&list.unwrap()), ["a", "b"], "and answered once it is there");
}

#[tokio::test]
async fn pages() {
    let c = Cluster::new();
    for name in ["a", "b", "c", "d", "e"] {
        c.create(name).await;
    }
    c.label("d", "x").await;
    let at = revision(&c.list("").await.unwrap());
    let first = c.list("limit=2").await.unwrap();
    assert_eq!((names(&first), meta(&first)), (vec!["a", "b"], (at, true, Some(3))));
    c.delete("c").await;
    c.create("bb").await;
    let token = |page: &Value| page["metadata"]["continue"].as_str().unwrap().to_owned();
    let second = c.list(&format!("limit=2&continue={}", token(&first))).await.unwrap();
    assert_eq!((names(&second), meta(&second)), (vec!["c", "d"], (at, true, Some(1))));
    let third = c.list(&format!("limit=2&continue={}", token(&second))).await.unwrap();
    assert_eq!((names(&third), meta(&third)), (vec!["e"], (at, false, None)));
    let rest = c.list(&format!("continue={}", token(&first))).await.unwrap();
    assert_eq!((names(&rest), meta(&rest)), (vec!["c", "d", "e"], (at, false, None)));
    // How many remain is not known of a selection.
    let some = c.list("limit=1&labelSelector=app!=x").await.unwrap();
    assert_eq!((names(&some), some["metadata"]["continue"].is_string()), (vec!["a"], true));
    assert_eq!(meta(&some).2, None);
    let whole = c.list("limit=5").await.unwrap();
    assert_eq!((names(&whole).len(), meta(&whole).1, meta(&whole).2), (5, false, None));
    // A page of any state is the whole of it.
    let any = c.list("limit=1&resourceVersion=0").await.unwrap();
    assert_eq!((names(&any).len(), meta(&any).1), (5, false));
}

#[tokio::test]
async fn what_is_compacted() {
    let c = Cluster::new();
    for name in ["a", "b", "c"] {
        c.create(name).await;
    }
    let page = c.list("limit=1").await.unwrap();
    let at = revision(&page);
    let token = page["metadata"]["continue"].as_str().unwrap();
    c.delete("b").await;
    let now = c.create("bb").await;
    c.server.0.objects.store.compact(now);
    for query in
        [format!("resourceVersion={at}&resourceVersionMatch=Exact"), format!("resourceVersion={at}&limit=1")]
    {
        let gone = c.list(&query).await.unwrap_err();
        assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
        assert_eq!(gone.message, "The resourceVersion for the provided list is too old.");
    }
    let gone = c.list(&format!("limit=1&continue={token}")).await.unwrap_err();
    assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
    assert!(gone.message.starts_with("The provided continue parameter is too old to display"), "{gone}");
    // It carries a token that goes on in the present state.
    let rest = c.list(&format!("limit=1&continue={}", gone.continue_token.unwrap())).await.unwrap();
    assert_eq!((names(&rest), meta(&rest)), (vec!["bb"], (now, true, Some(1))));
    let token = rest["metadata"]["continue"].as_str().unwrap();
    let rest = c.list(&format!("continue={token}")).await.unwrap();
    assert_eq!((names(&rest), meta(&rest)), (vec!["c"], (now, false, None)));

    let watch = call(Verb::Watch, &format!("{MAPS}?resourceVersion={at}"), &Value::Null);
    let mut events = c.transport.watch(watch).await.unwrap();
    let gone = events.next().await.unwrap().unwrap_err();
    assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
    assert_eq!(gone.message, format!("too old resource version: {at} ({now})"));
    assert!(events.next().await.is_none(), "an error is the last event");
}

#[tokio::test]
async fn a_watch_tells_revisions() {
    let c = Cluster::new();
    let a = c.create("a").await;
    let watch = async |query: &str| {
        let call = call(Verb::Watch, &format!("{MAPS}?{query}"), &Value::Null);
        c.transport.watch(call).await.unwrap().map(|event| {
            let event = event.unwrap();
            let object: Value = serde_json::from_slice(&event.object).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            (event.kind, name, revision(&object))
        })
    };
    let mut all = watch(&format!("resourceVersion={a}")).await;
    let mut selected = watch(&format!("resourceVersion={a}&labelSelector=app=x")).await;
    let mut old = watch("resourceVersion=0").await;
    assert_eq!(old.next().await.unwrap(), (EventKind::Added, "a".into(), a), "as a watch always began");
    let entered = c.label("a", "x").await;
    let left = c.label("a", "y").await;
    c.delete("a").await;
    let gone = revision(&c.list("").await.unwrap());
    assert_eq!(all.next().await.unwrap(), (EventKind::Modified, "a".into(), entered));
    assert_eq!(all.next().await.unwrap(), (EventKind::Modified, "a".into(), left));
    assert_eq!(all.next().await.unwrap(), (EventKind::Deleted, "a".into(), gone), "not its last update's");
    assert_eq!(selected.next().await.unwrap(), (EventKind::Added, "a".into(), entered));
    assert_eq!(
        selected.next().await.unwrap(),
        (EventKind::Deleted, "a".into(), left),
        "the revision by which it left"
    );
    let mut late = watch(&format!("resourceVersion={left}&labelSelector=app=y")).await;
    assert_eq!(late.next().await.unwrap(), (EventKind::Deleted, "a".into(), gone));
}
