//! Upstream's cases of the limits in `horizontal_test.go`.

use serde::Deserialize;

use super::*;

/// A moment with some time before it.
fn now() -> Instant {
    Instant::now() + Duration::from_hours(2)
}

/// Sizes, and how many seconds ago they were recommended or made.
type Before = Vec<(i32, u64)>;

fn changes(before: &[(i32, u64)]) -> Vec<Change> {
    before.iter().map(|(by, ago)| Change { by: *by, at: now() - Duration::from_secs(*ago) }).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ByRules {
    name: String,
    min: i32,
    max: i32,
    current: i32,
    desired: i32,
    want: i32,
    why: String,
    up: Option<HPAScalingRules>,
    down: Option<HPAScalingRules>,
    #[serde(default)]
    ups: Before,
    #[serde(default)]
    downs: Before,
}

/// `TestScalingWithRules`.
#[tokio::test(start_paused = true)]
async fn by_rules() {
    let cases: Vec<ByRules> = serde_json::from_str(include_str!("cases/rules.json")).unwrap();
    assert_eq!(cases.len(), 42);
    for case in cases {
        let history = History { ups: changes(&case.ups), downs: changes(&case.downs), ..History::default() };
        let behavior = Behavior { scale_up: case.up, scale_down: case.down };
        let sizes = Sizes { min: case.min, max: case.max, current: case.current, desired: case.desired };
        let rules = Rules::new(&behavior, Duration::ZERO);
        let (size, (why, _)) = history.by_rules(sizes, &rules, now());
        assert_eq!((size, why), (case.want, case.why.as_str()), "{}", case.name);
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WithoutRules {
    name: String,
    current_replicas: i32,
    expected_desired_replicas: i32,
    hpa_min_replicas: i32,
    hpa_max_replicas: i32,
    expected_converted_desired_replicas: i32,
    expected_condition: String,
}

/// `TestConvertDesiredReplicasWithRules`.
#[test]
fn in_range() {
    let cases: Vec<WithoutRules> = serde_json::from_str(include_str!("cases/limits.json")).unwrap();
    assert_eq!(cases.len(), 5);
    for case in cases {
        let sizes = Sizes {
            min: case.hpa_min_replicas,
            max: case.hpa_max_replicas,
            current: case.current_replicas,
            desired: case.expected_desired_replicas,
        };
        let (size, (why, _)) = without_rules(sizes, GROWTH);
        let want = (case.expected_converted_desired_replicas, case.expected_condition.as_str());
        assert_eq!((size, why), want, "{}", case.name);
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stable {
    name: String,
    current: i32,
    desired: i32,
    want: i32,
    up: i32,
    down: i32,
    before: Before,
}

fn recommended(before: &[(i32, u64)]) -> History {
    let recommended = changes(before).into_iter().map(|c| (c.by, c.at)).collect();
    History { recommended, ..History::default() }
}

/// `TestNormalizeDesiredReplicasWithBehavior`.
#[tokio::test(start_paused = true)]
async fn stable_by_rules() {
    let cases: Vec<Stable> = serde_json::from_str(include_str!("cases/stable.json")).unwrap();
    assert_eq!(cases.len(), 11);
    for case in cases {
        let rules = |window| HPAScalingRules {
            stabilization_window_seconds: Some(window),
            ..HPAScalingRules::default()
        };
        let behavior = Behavior { scale_up: Some(rules(case.up)), scale_down: Some(rules(case.down)) };
        let sizes = Sizes { min: 0, max: i32::MAX, current: case.current, desired: case.desired };
        let rules = Rules::new(&behavior, Duration::ZERO);
        let mut history = recommended(&case.before);
        let (size, _) = history.stable(sizes, &rules, now());
        assert_eq!(size, case.want, "{}", case.name);
        assert_eq!(history.recommended.last(), Some(&(case.desired, now())), "{}", case.name);
    }
}

/// `TestNormalizeDesiredReplicas`; what is too old is not kept here.
#[tokio::test(start_paused = true)]
async fn stable_without_rules() {
    let check = |before: &[(i32, u64)], desired: i32, want: i32, kept: usize| {
        let mut history = recommended(before);
        let window = Duration::from_mins(5);
        assert_eq!(history.highest(desired, window, now()), want, "{before:?}");
        assert_eq!(history.recommended.len(), kept, "{before:?}");
    };
    check(&[], 5, 5, 1);
    check(&[(4, 120), (5, 60)], 3, 5, 3);
    check(&[(1, 120), (2, 60)], 3, 3, 3);
    check(&[(10, 600), (9, 540)], 3, 3, 1);
    check(&[(10, 600), (4, 60), (5, 120), (9, 540)], 3, 5, 3);
}

#[tokio::test(start_paused = true)]
async fn changes_are_kept_as_long_as_a_policy_reads_them() {
    let policy = |period_seconds| HPAScalingPolicy { type_: "Pods".to_owned(), value: 1, period_seconds };
    let rules =
        HPAScalingRules { policies: Some(vec![policy(60), policy(120)]), ..HPAScalingRules::default() };
    let behavior = Behavior { scale_up: Some(rules), scale_down: None };
    let mut history = History { ups: changes(&[(1, 200), (2, 100), (3, 10)]), ..History::default() };
    history.changed(Some(&behavior), 5, 9, now());
    let sizes: Vec<i32> = history.ups.iter().map(|c| c.by).collect();
    assert_eq!(sizes, [2, 3, 4]);
    history.changed(Some(&behavior), 9, 3, now());
    assert_eq!(history.downs, [Change { by: 6, at: now() }]);
    history.changed(None, 3, 9, now());
    assert_eq!(history.ups.len(), 3, "without rules nobody asks for it");
}

/// `TestCalculateScaleUpLimitWithScalingRules` and `TestCalculateScaleDownLimitWithBehaviors`.
#[tokio::test(start_paused = true)]
async fn the_least_change() {
    let policy = |type_: &str, value| HPAScalingPolicy { type_: type_.to_owned(), value, period_seconds: 60 };
    let rules = HPAScalingRules {
        policies: Some(vec![policy("Pods", 2), policy("Percent", 50)]),
        select_policy: Some("Min".to_owned()),
        ..HPAScalingRules::default()
    };
    let history = History::default();
    assert_eq!(history.up_limit(1, &rules, now()), 2);
    assert_eq!(history.down_limit(5, &rules, now()), 3);
    let off = HPAScalingRules { select_policy: Some("Disabled".to_owned()), ..rules };
    assert_eq!((history.up_limit(5, &off, now()), history.down_limit(5, &off, now())), (5, 5));
}

/// `TestStoreScaleEvents`, in both directions. DIFFERENCE: a change that is too old is forgotten at once; upstream marks
/// it, and puts the next one in its place.
#[tokio::test(start_paused = true)]
async fn changes_that_are_kept() {
    // The policies: Pods and their period, percent and its period.
    type Policies = Option<[i32; 4]>;
    let check = |before: &[(i32, u64)], of: Policies, kept: &[i32], in_period: i32| {
        let policy = |type_: &str, value, period_seconds| HPAScalingPolicy {
            type_: type_.to_owned(),
            value,
            period_seconds,
        };
        let rules = of.map(|[pods, period, percent, its_period]| {
            let all = [policy("Pods", pods, period), policy("Percent", percent, its_period)];
            let policies = all.into_iter().filter(|p| p.value > 0).collect();
            HPAScalingRules { policies: Some(policies), ..HPAScalingRules::default() }
        });
        for up in [true, false] {
            let mut history = History::default();
            *(if up { &mut history.ups } else { &mut history.downs }) = changes(before);
            let start = history.at_start(10, 60, now());
            assert_eq!(start, if up { 10 - in_period } else { 10 + in_period }, "{before:?}");
            let (scale_up, scale_down) = if up { (rules.clone(), None) } else { (None, rules.clone()) };
            let behavior = of.map(|_| Behavior { scale_up, scale_down });
            history.changed(behavior.as_ref(), 10, if up { 15 } else { 5 }, now());
            let got = if up { &history.ups } else { &history.downs };
            assert_eq!(got.iter().map(|c| c.by).collect::<Vec<_>>(), kept, "{before:?}");
        }
    };
    let two = Some([10, 60, 100, 60]);
    check(&[], None, &[], 0);
    check(&[], two, &[5], 0);
    check(&[(7, 61)], None, &[7], 0);
    check(&[(7, 61)], two, &[5], 0);
    check(&[(7, 58)], two, &[7, 5], 7);
    check(&[(7, 61), (6, 59)], Some([10, 60, 0, 0]), &[6, 5], 6);
    let several = [(8, 29), (6, 59), (7, 61), (9, 61)];
    check(&several, Some([10, 60, 100, 30]), &[8, 6, 5], 14);
    check(&[(7, 58), (6, 59)], Some([10, 120, 100, 30]), &[7, 6, 5], 13);
}
