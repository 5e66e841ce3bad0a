//! Expressions that would take more than there is: stack, memory or time.

use cel::{Budget, Environment, Type, Value, Variables, Version};
use ferrokube_cel as cel;

/// Half of a thread's stack.
const STACK: usize = 1 << 20;

/// Compiles and evaluates on a small stack; the result is not looked at.
fn survives(expressions: Vec<String>) {
    let run = move || {
        let env = Environment::new(Version::STORED).with_variable("s", Type::String);
        for e in expressions {
            let Ok(program) = env.compile(&e) else { continue };
            let variables = Variables::default().with("s", Value::text("x".repeat(1000)));
            let mut budget = Budget::default();
            drop(program.evaluate(&variables, &mut budget));
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap();
    thread.join().unwrap();
}

#[test]
fn deep_nesting_fits_the_stack() {
    let nested = |open: &str, inner: &str, close: &str, n: usize| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    let mut all = Vec::new();
    for n in [100, 249, 250, 100_000 / 20] {
        all.push(nested("(", "1", ")", n));
        all.push(nested("[", "1", "]", n));
        all.push(nested("!(", "true", ")", n));
        all.push(nested("size(", "s", ")", n));
        all.push(nested("(true ? ", "1", " : 1)", n));
        all.push(nested("[1].map(x, ", "1", ")", n.min(300)));
        all.push(vec!["1"; n].join(" + "));
        all.push(vec!["true"; n].join(" && "));
        all.push(format!("s{}", ".a".repeat(n)));
    }
    survives(all);
}

#[test]
fn great_results_are_refused() {
    let doubled = format!("[1]{}.size()", ".map(x, [x, x]).flatten()".repeat(40));
    let lists = format!("[[1]]{}.size()", ".map(x, x + x)".repeat(60));
    let replaced = format!("s{}", ".replace('', s)".repeat(20));
    survives(vec![doubled, lists, replaced, "lists.range(1000000000000).size()".into()]);
}
