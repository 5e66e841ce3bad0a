//! The scores of nodes by their storage (upstream's `scorer.go` and `VolumeBinding.Score`).

use std::collections::BTreeMap;

use objects::resources::Amount;
use objects::volumes;

use super::needs::Found;
use crate::config::args::ShapePoint;
use crate::plugins::resources::by_shape;

/// The whole of something, in percent.
const MOST: Amount = 100;

/// The storage of a class that claims take, and that there is, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Storage {
    requested: Amount,
    capacity: Amount,
}

/// The score of what a node has for a Pod's claims: present volumes count, or else the storage for those that are to be
/// provisioned, as far as drivers tell.
pub(super) fn of(found: &Found, shape: &[ShapePoint]) -> i64 {
    let mut classes: BTreeMap<&str, Storage> = BTreeMap::new();
    if found.volumes.is_empty() {
        for (claim, capacity) in found.provisioned.iter().zip(&found.capacities) {
            let Some(capacity) = capacity else { continue };
            let storage = classes.entry(volumes::claim_class(claim)).or_default();
            storage.requested += Amount::from(volumes::requested(claim).unwrap_or_default().value());
            // All claims of a class take of the same storage.
            storage.capacity = *capacity;
        }
    } else {
        for (volume, claim) in &found.volumes {
            let storage = classes.entry(volumes::volume_class(volume)).or_default();
            storage.requested += Amount::from(volumes::requested(claim).unwrap_or_default().value());
            storage.capacity += Amount::from(volumes::capacity(volume).value());
        }
    }
    mean(classes.values().copied(), shape)
}

/// The mean of the scores of classes, by how full each becomes.
fn mean(classes: impl Iterator<Item = Storage>, shape: &[ShapePoint]) -> i64 {
    let (mut sum, mut count) = (0, 0_u32);
    for Storage { requested, capacity } in classes {
        let utilization = match capacity {
            0 => MOST,
            _ if requested > capacity => MOST,
            _ => requested.saturating_mul(MOST) / capacity,
        };
        sum += by_shape(shape, utilization);
        count += 1;
    }
    if count == 0 { 0 } else { (sum as f64 / f64::from(count)).round() as i64 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::config::defaults::usual_shape;

    fn shape(points: &[(i32, i32)]) -> Vec<ShapePoint> {
        points
            .iter()
            .map(|(utilization, score)| ShapePoint { utilization: *utilization, score: *score })
            .collect()
    }

    /// The cases of upstream's `TestScore`: what is requested of the 100 that each class has, and the score.
    #[test]
    fn classes() {
        let check = |points: &[ShapePoint], requested: &[Amount], want: i64| {
            let all = requested.iter().map(|requested| Storage { requested: *requested, capacity: 100 });
            assert_eq!(mean(all, points), want, "{requested:?}");
        };
        let rising = shape(&[(0, 0), (100, 10)]);
        for (requested, want) in [(0, 0), (30, 30), (50, 50), (100, 100)] {
            check(&rising, &[requested], want);
        }
        for (hdd, ssd, want) in
            [(0, 0, 0), (0, 30, 15), (30, 30, 30), (30, 60, 45), (50, 50, 50), (50, 100, 75), (100, 100, 100)]
        {
            check(&rising, &[hdd, ssd], want);
        }
        let bent = shape(&[(50, 0), (80, 3), (100, 5)]);
        for (hdd, ssd, want) in
            [(0, 0, 0), (0, 30, 0), (30, 30, 0), (30, 60, 5), (50, 100, 25), (90, 90, 40), (100, 100, 50)]
        {
            check(&bent, &[hdd, ssd], want);
        }
        check(&usual_shape(), &[30], 70);
        check(&usual_shape(), &[], 0);
        assert_eq!(mean([Storage::default()].into_iter(), &rising), 100, "nothing is all used");
        let beyond = Storage { requested: Amount::MAX, capacity: Amount::MAX };
        assert!(mean([beyond].into_iter(), &rising) <= 100);
    }

    /// The rules of upstream's `Score`: present volumes count before others, which count once a class.
    #[test]
    fn volumes_and_storage() {
        let claim = |class: &str, size: &str| {
            let claim: Value = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": class,
                "resources": {"requests": {"storage": size}}}});
            Arc::new(serde_json::from_value(claim).unwrap())
        };
        let volume = |class: &str, size: &str| {
            let volume = json!({"metadata": {"name": "v"}, "spec": {"storageClassName": class, "capacity": {"storage": size}}});
            Arc::new(serde_json::from_value(volume).unwrap())
        };
        let rising = shape(&[(0, 0), (100, 10)]);
        let mut found = Found::default();
        assert_eq!(of(&found, &rising), 0);
        found.provisioned = vec![claim("a", "25"), claim("a", "25"), claim("b", "10"), claim("c", "1")];
        found.capacities = vec![Some(100), Some(100), Some(100), None];
        assert_eq!(of(&found, &rising), 30, "50 of 100 and 10 of 100; nobody tells of the third class");
        found.volumes = vec![(volume("d", "100"), claim("d", "50")), (volume("d", "100"), claim("d", "100"))];
        assert_eq!(of(&found, &rising), 75);
    }
}
