use super::*;

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// The Leases of a cluster, with their history.
#[derive(Default)]
struct Store {
    entries: BTreeMap<Name, Entry>,
    history: Vec<(Name, Option<Entry>)>,
    version: u64,
}

impl Store {
    fn put(&mut self, name: &Name, entry: Option<(String, Vec<Cidr>)>) -> u64 {
        self.version += 1;
        let entry = entry.map(|(holder, networks)| Entry { version: self.version, holder, networks });
        match &entry {
            Some(entry) => drop(self.entries.insert(name.clone(), entry.clone())),
            None => drop(self.entries.remove(name)),
        }
        self.history.push((name.clone(), entry));
        self.version
    }

    fn do_it(&mut self, action: &Action) -> Outcome {
        let name = action.name();
        let there = self.entries.get(&name).map(|e| e.version);
        match action {
            Action::Write { version, holder, networks, .. } => match (there, version) {
                (None, Some(_)) => Outcome::Gone,
                (there, wanted) if there == *wanted => {
                    Outcome::Written(self.put(&name, Some((holder.clone(), networks.clone()))))
                }
                _ => Outcome::Conflict,
            },
            Action::Delete { version, .. } => match there {
                Some(there) if there != *version => Outcome::Conflict,
                there => {
                    if there.is_some() {
                        self.put(&name, None);
                    }
                    Outcome::Gone
                }
            },
            Action::Look { .. } => Outcome::Looked(self.entries.get(&name).cloned()),
        }
    }
}

/// A request or an answer on its way.
struct Travelling {
    node: usize,
    start: u64,
    at: Duration,
    action: Action,
    answer: Option<Outcome>,
}

struct Member {
    name: String,
    holding: Holding,
    /// How fast its clock goes.
    rate: f64,
    runs: bool,
    /// Until when it does nothing but answer: its threads that decide are held up.
    stalled: Duration,
    /// The number of its starts.
    start: u64,
    seen: usize,
    /// Until when its watch shows nothing.
    deaf: Duration,
}

struct World {
    now: Duration,
    store: Store,
    members: Vec<Member>,
    travelling: Vec<Travelling>,
    wanted: BTreeMap<IpAddr, Wanted>,
    words: u64,
    random: fastrand::Rng,
    /// The longest way of a request or an answer.
    slowest: Duration,
    /// How many of a hundred requests or answers are lost.
    lost: u8,
}

fn network() -> Vec<Cidr> {
    vec!["192.0.2.0/24".parse().unwrap()]
}

fn addresses(count: u8) -> Vec<IpAddr> {
    (1..=count).map(|i| IpAddr::from([192, 0, 2, i])).collect()
}

impl World {
    fn new(seed: u64, nodes: usize, count: u8) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let names: Vec<String> = (0..nodes).map(|n| format!("n{n}")).collect();
        let members = names.iter().map(|name| Member {
            name: name.clone(),
            holding: Holding::new(name, Timing::default()),
            rate: 0.88 + 0.24 * random.f64(),
            runs: true,
            stalled: Duration::ZERO,
            start: 0,
            seen: 0,
            deaf: Duration::ZERO,
        });
        let members = members.collect();
        let wanted = Wanted { nodes: names.iter().cloned().collect() };
        let mut world = Self {
            now: Duration::from_secs(100),
            store: Store::default(),
            members,
            travelling: Vec::new(),
            wanted: addresses(count).into_iter().map(|a| (a, wanted.clone())).collect(),
            words: 0,
            random,
            slowest: Duration::from_millis(20),
            lost: 0,
        };
        (0..nodes).for_each(|n| world.start(n));
        world
    }

    fn start(&mut self, n: usize) {
        let wanted = self.wanted.clone();
        let member = &mut self.members[n];
        member.holding = Holding::new(&member.name, Timing::default());
        member.holding.set_networks(network());
        member.holding.set_wanted(wanted);
        member.runs = true;
        member.start += 1;
        member.seen = 0;
    }

    fn want(&mut self, wanted: BTreeMap<IpAddr, Wanted>) {
        self.wanted = wanted;
        for member in &mut self.members {
            member.holding.set_wanted(self.wanted.clone());
        }
    }

    fn delay(&mut self) -> Duration {
        self.now + self.slowest.mul_f64(self.random.f64())
    }

    /// One step of the clock, after which no address has two that answer for it.
    fn step(&mut self) {
        self.now += STEP;
        let due: Vec<Travelling> = {
            let now = self.now;
            let (due, later) = std::mem::take(&mut self.travelling).into_iter().partition(|t| t.at <= now);
            self.travelling = later;
            due
        };
        for mut t in due {
            if let Some(outcome) = t.answer {
                let member = &mut self.members[t.node];
                if member.runs && member.start == t.start {
                    let local = self.now.mul_f64(member.rate);
                    member.holding.done(t.action, &outcome, local);
                }
                continue;
            }
            let is_lost = self.random.u8(..100) < self.lost;
            let mut outcome = if is_lost { Outcome::Unknown } else { self.store.do_it(&t.action) };
            if self.random.u8(..100) < self.lost {
                outcome = Outcome::Unknown;
            }
            t.at = self.delay();
            t.answer = Some(outcome);
            self.travelling.push(t);
        }
        for n in 0..self.members.len() {
            self.run(n);
        }
        let mut answering: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for member in self.members.iter().filter(|m| m.runs) {
            let local = self.now.mul_f64(member.rate);
            for address in member.holding.answers(local).map(|(all, _)| all).unwrap_or_default() {
                let other = answering.insert(address, &member.name);
                assert_eq!(other, None, "{address} is answered for by {}, too", member.name);
            }
        }
    }

    fn run(&mut self, n: usize) {
        let (now, words) = (self.now, &mut self.words);
        let member = &mut self.members[n];
        if !member.runs || member.stalled > now {
            return;
        }
        let local = now.mul_f64(member.rate);
        if member.deaf <= now {
            // The watch shows the history; now and then only a part of it, and one Lease's before another's.
            let end = self.store.history.len();
            let upto = if self.lost > 0 { self.random.usize(member.seen..=end) } else { end };
            let mut shown: Vec<_> = self.store.history[member.seen..upto].iter().collect();
            if self.lost > 0 {
                let salt = self.random.u64(..);
                shown.sort_by_key(|(name, _)| weight(&format!("{name:?}{salt}"), IpAddr::from([0; 4])));
            }
            for (name, entry) in shown {
                member.holding.observe(name, entry.clone(), local);
            }
            member.seen = upto;
        }
        let actions = member.holding.decide(local, &mut || {
            *words += 1;
            words.to_string()
        });
        let start = member.start;
        for action in actions {
            let at = self.delay();
            self.travelling.push(Travelling { node: n, start, at, action, answer: None });
        }
    }

    /// The node that answers for each address.
    fn answering(&self) -> BTreeMap<IpAddr, String> {
        let mut all = BTreeMap::new();
        for member in self.members.iter().filter(|m| m.runs) {
            let answers = member.holding.answers(self.now.mul_f64(member.rate));
            for address in answers.map(|(all, _)| all).unwrap_or_default() {
                all.insert(address, member.name.clone());
            }
        }
        all
    }

    /// Goes on until something holds; the time that it took.
    fn until(&mut self, limit: Duration, what: &str, holds: impl Fn(&Self) -> bool) -> Duration {
        let mut took = Duration::ZERO;
        while !holds(self) {
            assert!(took < limit, "{what}: not within {limit:?}: {:?}", self.answering());
            self.step();
            took += STEP;
        }
        took
    }

    fn all_answered(&self) -> bool {
        self.answering().len() == self.wanted.len()
    }
}

/// Whatever crashes, stalls, delays and losses there are, no address has two that answer; and when they end, each has
/// one.
#[test]
fn never_two() {
    let rounds: u64 =
        std::env::var("FERROKUBE_HOLDING_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    for seed in 0..rounds {
        let mut world = World::new(seed, 3, 4);
        world.slowest = Duration::from_millis(world.random.u64(10..3000));
        world.lost = world.random.u8(..30);
        for _ in 0..4000 {
            world.step();
            let n = world.random.usize(..3);
            let later = world.now + Duration::from_millis(world.random.u64(..5000));
            match world.random.u16(..1500) {
                0 => world.members[n].runs = false,
                1..=3 if !world.members[n].runs => world.start(n),
                4 => world.members[n].stalled = later,
                5 => world.members[n].deaf = later,
                6 => {
                    let name = world.store.entries.keys().nth(world.random.usize(..3)).cloned();
                    if let Some(name) = name {
                        world.store.put(&name, None);
                    }
                }
                7 => {
                    let mut wanted = world.wanted.clone();
                    let address = addresses(4)[world.random.usize(..4)];
                    if wanted.remove(&address).is_none() {
                        let nodes = (0..3).filter(|_| world.random.bool()).map(|n| format!("n{n}")).collect();
                        wanted.insert(address, Wanted { nodes });
                    }
                    world.want(wanted);
                }
                _ => {}
            }
        }
        (world.slowest, world.lost) = (Duration::from_millis(20), 0);
        let nodes: BTreeSet<String> = (0..3).map(|n| format!("n{n}")).collect();
        world.want(addresses(4).into_iter().map(|a| (a, Wanted { nodes: nodes.clone() })).collect());
        for n in 0..3 {
            if !world.members[n].runs {
                world.start(n);
            }
        }
        world.until(30 * SECOND, &format!("seed {seed}"), World::all_answered);
    }
}

/// After the death of a holder its addresses move within three seconds, and no others.
#[test]
fn takeover() {
    for seed in 0..40 {
        let mut world = World::new(seed, 3, 8);
        world.members.iter_mut().for_each(|m| m.rate = 1.0);
        world.until(5 * SECOND, "the start", World::all_answered);
        let before = world.answering();
        let victim = before.values().next().cloned().unwrap();
        let n = world.members.iter().position(|m| m.name == victim).unwrap();
        world.members[n].runs = false;
        let took = world.until(3 * SECOND, "the takeover", World::all_answered);
        assert!(took > SECOND, "{took:?}");
        for (address, node) in world.answering() {
            assert!(before[&address] == victim || before[&address] == node, "{address} moved to {node}");
        }
        // It comes back, and takes nothing from those who hold.
        let after = world.answering();
        world.start(n);
        (0..500).for_each(|_| world.step());
        assert_eq!(world.answering(), after);
    }
}

/// A node that leaves gives its addresses away at once; one that may not hold an address any more gives it back.
#[test]
fn giving_back() {
    let mut world = World::new(1, 3, 3);
    world.until(5 * SECOND, "the start", World::all_answered);
    let victim = world.answering().into_values().next().unwrap();
    let n = world.members.iter().position(|m| m.name == victim).unwrap();
    let leave = world.members[n].holding.leave().unwrap();
    world.store.do_it(&leave);
    world.members[n].runs = false;
    assert!(world.until(SECOND, "leaving", World::all_answered) < Duration::from_millis(500));
    let (address, holder) = world.answering().into_iter().next().unwrap();
    let mut wanted = world.wanted.clone();
    wanted.get_mut(&address).unwrap().nodes.remove(&holder);
    world.want(wanted);
    let moved = |w: &World| w.answering().get(&address).is_some_and(|node| *node != holder);
    assert!(world.until(SECOND, "the move", moved) < Duration::from_millis(500));
    // An address that nobody wants has no record any more, and then no node writes anything.
    world.want(BTreeMap::new());
    world.until(5 * SECOND, "the end", |w| !w.store.entries.keys().any(|n| matches!(n, Name::Address(_))));
    (0..100).for_each(|_| world.step());
    let writes = world.store.history.len();
    (0..1000).for_each(|_| world.step());
    assert_eq!(world.store.history.len(), writes);
    assert!(world.members.iter().filter(|m| m.runs).all(|m| m.holding.wake(world.now).is_none()));
}

/// A node without a link in the address' network is none for it.
#[test]
fn only_nodes_on_the_network() {
    let mut world = World::new(2, 2, 1);
    world.members[0].holding.set_networks(vec!["198.51.100.0/24".parse().unwrap()]);
    world.until(5 * SECOND, "the start", World::all_answered);
    assert_eq!(world.answering().into_values().collect::<Vec<_>>(), ["n1"]);
}

/// Many addresses are shared by all nodes.
#[test]
fn shares() {
    let mut world = World::new(3, 3, 90);
    world.until(10 * SECOND, "the start", World::all_answered);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    world.answering().into_values().for_each(|node| *counts.entry(node).or_default() += 1);
    assert!(counts.len() == 3 && counts.values().all(|count| *count >= 15), "{counts:?}");
}

/// A Lease that is older than the record says nothing of the session there, whatever it names.
#[test]
fn an_old_lease_ends_no_session() {
    let address = addresses(1)[0];
    let mut holding = Holding::new("n1", Timing::default());
    holding.set_networks(network());
    let nodes = ["n0", "n1"].map(str::to_owned).into();
    holding.set_wanted([(address, Wanted { nodes })].into());
    let mut words = 0;
    let mut now = Duration::ZERO;
    let mut decide = |holding: &mut Holding, after: u64| {
        now += Duration::from_millis(after);
        let actions = holding.decide(now, &mut || {
            words += 1;
            words.to_string()
        });
        let (own, others) =
            actions.into_iter().partition::<Vec<_>, _>(|a| a.name() == Name::Node("n1".to_owned()));
        for action in own {
            holding.done(action, &Outcome::Written(10 + now.as_millis() as u64), now);
        }
        (others, now)
    };
    let entry =
        |version: u64, holder: &str| Some(Entry { version, holder: holder.to_owned(), networks: Vec::new() });
    // It has a session, which is not old enough yet.
    decide(&mut holding, 400);
    let (_, now) = decide(&mut holding, 800);
    holding.observe(&Name::Node("n0".to_owned()), entry(3, "n0_i"), now);
    holding.observe(&Name::Address(address), entry(5, "n0_j"), now);
    assert_eq!(decide(&mut holding, 400).0, []);
    holding.observe(&Name::Node("n0".to_owned()), entry(6, ""), now);
    let taken = decide(&mut holding, 100).0;
    assert!(
        matches!(&taken[..], [Action::Write { name: Name::Address(_), version: Some(5), .. }]),
        "{taken:?}"
    );
}
