//! Tests of outlines: what is the same tree, what a tree contains, and texts that are no scripts.

use std::sync::Arc;

use super::outline::same_nodes;
use super::*;
use flagperf_core::measure::MonotonicClock;

fn parser() -> ScriptParser {
    ScriptParser::new(Arc::new(MonotonicClock::start()))
}

fn outline(text: &str) -> ScriptOutline {
    parser().parse(text).unwrap_or_else(|problem| panic!("{problem}: {text}"))
}

fn has_same_trees(one: &ScriptOutline, other: &ScriptOutline) -> bool {
    let find = |own: &FunctionOutline| other.find(&own.name, own.parameters.len());
    one.imports == other.imports
        && same_nodes(&one.statements, &other.statements)
        && one.functions.len() == other.functions.len()
        && one.functions.iter().all(|own| find(own).is_some_and(|found| own.has_same_tree(found)))
}

#[test]
fn layout_comments_and_the_order_of_functions_do_not_change_the_trees() {
    let one = "fn f(a) { let x = a.b; x + 1 }\nfn g(a) { [1, 2].map(|n| n * a) }\n";
    let other = "// note\nfn g(a) {\n    [1, /* one */ 2,]\n        .map(|n| n * a)\n}\n\nfn f(a) {\n  let x = (a.b);\n  x + 1\n}\n";
    assert!(has_same_trees(&outline(one), &outline(other)));
}

#[test]
fn every_change_of_meaning_changes_the_tree() {
    for (one, other) in [
        ("a + 1", "a + 2"),
        ("a + 1", "a - 1"),
        ("a + 1", "b + 1"),
        ("a.x", "a.y"),
        ("a.x", "a?.x"),
        ("a[0]", "a?[0]"),
        ("g(a)", "g(a, b)"),
        ("a.run(b)", "a.walk(b)"),
        ("m::g(a)", "n::g(a)"),
        ("if a { g(); h(); }", "if a { g(); } else { h(); }"),
        ("while a { break g(); }", "while a { break h(); }"),
        ("do { g(); } while a", "do { g(); } until a"),
        ("for x in a { g(); }", "for y in a { g(); }"),
        ("for (x, i) in a { g(); }", "for (x, j) in a { g(); }"),
        ("switch a { 1 => g(), _ => h() }", "switch a { 2 => g(), _ => h() }"),
        ("switch a { 1 => g(), _ => h() }", "switch a { 1 => h(), _ => g() }"),
        ("switch a { 1..4 => g() }", "switch a { 1..5 => g() }"),
        ("switch a { 1 if b => g() }", "switch a { 1 => g() }"),
        ("try { g(); } catch (e) { h(); }", "try { g(); h(); } catch (e) { }"),
        ("#{x: a}", "#{y: a}"),
        ("a.map(|n| n + 1)", "a.map(|n| n + 2)"),
        ("a.map(|n| n + 1)", "a.map(|m, n| n + 1)"),
        ("let x = 1; x", "const x = 1; x"),
        ("let c = 1; c += a; c", "let c = 1; c -= a; c"),
        ("return a;", "throw a;"),
        ("`x${a}`", "`y${a}`"),
        ("a && b", "a || b"),
        ("a ?? b", "a || b"),
        ("[a, b]", "[[a, b]]"),
        ("1.0", "1"),
        ("'x'", "\"x\""),
        ("!a", "a"),
        ("Fn(\"g\")", "Fn(\"h\")"),
    ] {
        let functions = "fn g() {} fn h() {}";
        let with = |body: &str| parser().parse(&format!("fn f(a, b) {{ {body} }}\n{functions}"));
        if let (Ok(one_tree), Ok(other_tree)) = (with(one), with(other)) {
            assert!(!has_same_trees(&one_tree, &other_tree), "{one} and {other}");
        } else {
            assert!(one.contains("m::"), "{one} and {other} must parse");
        }
    }
}

#[test]
fn calls_in_every_position_are_nodes() {
    for text in [
        "loop { break g(); }",
        "a.map(|n| g(n))",
        "#{x: [g()]}",
        "`${g()}`",
        "try { g() } catch { 1 }",
        "try { 1 } catch { g() }",
        "switch a { 1 if g() => 2, _ => 3 }",
        "switch a { 1 => 2, _ => g() }",
        "a[g()]",
        "a.b[g()].c",
        "return g();",
        "a ?? g()",
        "for x in g() { }",
        "while g() { }",
        "do { } while g()",
        "if a { } else if b { } else { g() }",
    ] {
        let tree = outline(&format!("fn f(a, b) {{ {text} }}\nfn g() {{ 1 }}\nfn g(n) {{ 1 }}"));
        let is_call = |node: &SyntaxNode| matches!(&node.kind, NodeKind::Call { name, .. } if name == "g");
        let function = tree.find("f", 2).unwrap();
        assert!(function.nodes.iter().any(is_call), "{text}: {:?}", function.nodes);
    }
}

#[test]
fn functions_have_their_lines_and_imports_their_names() {
    let tree =
        outline("import \"lib/shapes\" as s;\n\n// fn g() is below\nprivate fn g() { s::size(1) }\nfn f() { }\n");
    let found: Vec<_> = tree.functions.iter().map(|own| (own.name.as_str(), own.line, own.is_private)).collect();
    assert_eq!(found, [("g", 4, true), ("f", 5, false)]);
    assert_eq!(tree.imports["s"], "lib/shapes");
}

#[test]
fn methods_and_functions_have_the_packages_that_grant_them() {
    assert_eq!(packages_of("run"), ["session"]);
    assert_eq!(packages_of("top_k"), ["metric"]);
    assert!(packages_of("slice").contains(&"tensor"));
    assert_eq!(packages_of("keys"), [""; 0]);
}

#[test]
fn a_text_that_is_no_script_is_a_problem_with_its_line() {
    let parser = parser();
    for (text, line, reason) in [
        ("fn f() {\n    let x = ;\n}\n", 2, "unexpected ';'"),
        ("fn f() { eval(\"1\") }", 1, "'eval' is disabled"),
        ("fn f() {\n    y\n}\n", 2, "unknown variable `y`"),
    ] {
        let problem = parser.parse(text).unwrap_err();
        assert_eq!(problem.line, line, "{text}: {problem}");
        assert!(problem.reason.contains(reason), "{text}: {problem}");
    }
    let deep = format!("fn f(a) {{ {}a{} }}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(parser.parse(&deep).is_err());
    let chain = format!("fn f(a) {{ a{} }}", ".x".repeat(50_000));
    let _ = parser.parse(&chain);
    // The parser is usable after a mistake.
    assert!(parser.parse("fn f() { 1 }").is_ok());
}
