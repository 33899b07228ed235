//! Tests of the tensor functions against values that NumPy gives, and with hostile arguments.

use rhai::{Dynamic, Engine, EvalAltResult};

use super::Tensor;
use crate::sandbox;
use flagperf_core::limits::Limits;
use flagperf_core::tensor::DType;
use flagperf_core::units::Bytes;

/// Evaluates a script with the package and 64 MiB of memory.
fn evaluate(text: &str) -> Result<Dynamic, String> {
    let limits = Limits { script_memory_bytes: Bytes(64 << 20), ..Limits::default() };
    let (engine, script): (Engine, _) =
        sandbox::build_engine(&["tensor"], limits, crate::tests::services().0, "test".into());
    let memory_scope = script.budget.start();
    let result = engine.eval::<Dynamic>(text).map_err(|error| match *error {
        EvalAltResult::ErrorTerminated(reason, _) => reason.to_string(),
        other => other.to_string(),
    });
    drop(memory_scope);
    result
}

/// Returns the text of a value: a tensor as its spec and its elements, rounded to four digits.
fn text(value: &Dynamic) -> String {
    let Some(tensor) = value.read_lock::<Tensor>() else { return value.to_string() };
    let host = tensor.value().to_host().unwrap();
    let number = |x: &f64| {
        let rounded = (x * 1e4).round() / 1e4;
        if host.dtype() == DType::Bool { (rounded != 0.0).to_string() } else { rounded.to_string() }
    };
    let numbers: Vec<String> = host.to_f64().iter().map(number).collect();
    format!("{}: {}", host.spec(), numbers.join(" "))
}

fn check(table: &[(&str, &str)]) {
    for (script, expected) in table {
        let actual = evaluate(script).map_or_else(|error| error, |value| text(&value));
        assert_eq!(&actual, expected, "{script}");
    }
}

#[test]
fn tensors_are_created_from_specs_numbers_and_ranges() {
    check(&[
        (r#"tensor::from([1, 2.5], "2,f32")"#, "2,f32: 1 2.5"),
        (r#"tensor::from([9007199254740993], "1,i64").item()"#, "9007199254740993"),
        (r#"tensor::from([true, false], "2,bool")"#, "2,bool: true false"),
        ("tensor::arange(4)", "4,i64: 0 1 2 3"),
        ("tensor::arange(2, 8, 3)", "2,i64: 2 5"),
        ("tensor::arange(1.0, 0, -0.25)", "4,f32: 1 0.75 0.5 0.25"),
        ("tensor::arange(3, 1)", "0,i64: "),
        ("tensor::linspace(0, 1, 5)", "5,f32: 0 0.25 0.5 0.75 1"),
        ("tensor::linspace(2, 7, 1)", "1,f32: 2"),
        ("tensor::eye(2)", "2,2,f32: 1 0 0 1"),
        (r#"tensor::full("2,i8", -3)"#, "2,i8: -3 -3"),
    ]);
}

#[test]
fn arithmetic_broadcasts_and_keeps_the_type_of_the_tensor() {
    check(&[
        (r#"tensor::arange(3) + tensor::arange(2).unsqueeze(1)"#, "2,3,i64: 0 1 2 1 2 3"),
        ("1 - tensor::arange(3)", "3,i64: 1 0 -1"),
        ("7 / tensor::arange(1, 4)", "3,i64: 7 3 2"),
        (r#"1 / tensor::from([2, 4], "2,f32")"#, "2,f32: 0.5 0.25"),
        ("-tensor::arange(3)", "3,i64: 0 -1 -2"),
        (r#"tensor::from([7, -7], "2,i64") % 3"#, "2,i64: 1 2"),
        (r#"tensor::from([2, 3], "2,f32") ** 2"#, "2,f32: 4 9"),
        (r#"(tensor::from([1], "1,f16") / 3).dtype"#, "f16"),
        (r#"tensor::from([9007199254740993], "1,i64") + 0 == 9007199254740993"#, "1,bool: true"),
        ("let t = tensor::arange(2); t += 1; t", "2,i64: 1 2"),
        (r#"(tensor::zeros("1,u8") - 1).spec"#, "1,u8"),
    ]);
}

#[test]
fn comparisons_and_logic_give_booleans() {
    check(&[
        ("tensor::arange(3) > 1", "3,bool: false false true"),
        ("1 > tensor::arange(3)", "3,bool: true false false"),
        ("tensor::arange(3) <= 1", "3,bool: true true false"),
        ("tensor::arange(3) >= tensor::arange(3)", "3,bool: true true true"),
        ("tensor::arange(3) == 1", "3,bool: false true false"),
        ("tensor::arange(3) != 1", "3,bool: true false true"),
        ("tensor::arange(3).less(2)", "3,bool: true true false"),
        ("tensor::arange(3) == ()", "false"),
        ("() != tensor::arange(3)", "true"),
        ("let x = tensor::arange(3); (x > 0) & (x < 2)", "3,bool: false true false"),
        ("let x = tensor::arange(3); !(x > 0).or(x == 0)", "3,bool: false false false"),
        ("(tensor::arange(3) > 1).any()", "true"),
        ("(tensor::arange(3) > 1).all()", "false"),
        (r#"(tensor::from([1, 0, 1, 1], "2,2,i64") > 0).all(1)"#, "2,bool: false true"),
        ("(tensor::arange(4) > 1).sum().item()", "2"),
        (r#"let x = tensor::from([-1, 2], "2,f32"); tensor::where(x > 0, x, 0)"#, "2,f32: 0 2"),
    ]);
}

#[test]
fn elementwise_functions_match_numpy() {
    check(&[
        (r#"tensor::from([0, 1], "2,f32").exp()"#, "2,f32: 1 2.7183"),
        (r#"tensor::from([1, 10], "2,f64").log()"#, "2,f64: 0 2.3026"),
        (r#"tensor::from([0.5, 1.5, -2.5], "3,f32").round()"#, "3,f32: 0 2 -2"),
        (r#"tensor::from([-3, 0, 2], "3,i64").sign()"#, "3,i64: -1 0 1"),
        (r#"tensor::from([-3, 2], "2,i32").abs()"#, "2,i32: 3 2"),
        (r#"tensor::from([0, 1], "2,f32").erf()"#, "2,f32: 0 0.8427"),
        (r#"tensor::from([0, 1], "2,f32").sigmoid()"#, "2,f32: 0.5 0.7311"),
        (r#"tensor::from([-5, 0, 5], "3,f32").clip(-1, 2)"#, "3,f32: -1 0 2"),
        (r#"tensor::from([1, 5], "2,i64").minimum(3)"#, "2,i64: 1 3"),
        (r#"tensor::from([1.5, -1.5], "2,f32").floor()"#, "2,f32: 1 -2"),
        (r#"tensor::from([0, 1], "2,bf16").tanh().dtype"#, "bf16"),
    ]);
}

/// Where NumPy and the operators of ONNX differ, or a shorter way through f64 would round.
#[test]
fn integers_are_exact_and_do_not_overflow_in_sums() {
    check(&[
        (r#"tensor::from([200, 100], "2,u8").sum()"#, "i64: 300"),
        (r#"tensor::from([2147483647, 1], "2,i32").sum(0)"#, "i64: 2147483648"),
        (r#"tensor::from([100, 100], "2,i8").prod()"#, "i64: 10000"),
        ("(tensor::arange(3) > 0).cumsum(0)", "3,i64: 0 1 2"),
        (r#"tensor::from([200, 100], "2,u8").cumsum(0)"#, "2,i64: 200 300"),
        ("tensor::arange(9007199254740993, 9007199254740995)[0].item()", "9007199254740993"),
        ("tensor::arange(9007199254740993, 9007199254740995).len()", "2"),
        ("tensor::arange(9223372036854775800, 9223372036854775807, 3).len()", "3"),
        ("tensor::arange(5, 0, -2)", "3,i64: 5 3 1"),
        ("tensor::arange(0, 5, -1).len()", "0"),
        (r#"tensor::from([300, -1], "2,i64").cast("u8")"#, "2,u8: 44 255"),
        (
            r#"tensor::from([9007199254740993], "1,i64").allclose(tensor::from([9007199254740992], "1,i64"), 0.0, 0.0)"#,
            "false",
        ),
        (r#"tensor::from([9007199254740993, 2.0], "2,i64")[0].item()"#, "9007199254740993"),
        (r#"tensor::from([1.0004882812500002], "1,f64").cast("f16").cast("f64")[0].item() > 1.0009"#, "true"),
    ]);
}

#[test]
fn nan_and_infinity_are_kept() {
    let nan = r#"let x = tensor::from([1, 0], "2,f32"); let x = x / tensor::from([1, 0], "2,f32"); "#;
    let table = ["x.relu()", "x.clip(0, 2)", "x.maximum(0)", "x.max()"].map(|function| format!("{nan}{function}"));
    for script in &table {
        let value = text(&evaluate(script).unwrap());
        assert!(value.ends_with("NaN"), "{script}: {value}");
    }
    check(&[
        (r#"let one = tensor::full("1,f32", 1); one.allclose(one / 0)"#, "false"),
        (r#"let one = tensor::full("1,f32", 1); (one / 0).allclose(-one / 0)"#, "false"),
        (r#"let one = tensor::full("1,f32", 1); (one / 0).allclose(one / 0)"#, "true"),
    ]);
}

#[test]
fn sums_of_many_equal_numbers_are_accurate() {
    for script in [
        r#"(tensor::full("4000000,f32", 0.1).mean() - 0.1).abs() < 1e-7"#,
        r#"(tensor::full("1000000,2,f32", 0.1).mean(0) - 0.1).abs().max() < 1e-7"#,
        r#"(tensor::full("2,1000001,f32", 1000.1).mean(1) - 1000.1).abs().max() < 1e-3"#,
    ] {
        assert_eq!(text(&evaluate(script).unwrap()), "bool: true", "{script}");
    }
}

#[test]
fn slices_and_indices_match_numpy() {
    let x = "let x = tensor::arange(12).reshape([3, 4]); ";
    let table = [
        ("x[1]", "4,i64: 4 5 6 7"),
        ("x[-1][2].item()", "10"),
        ("x[1..3]", "2,4,i64: 4 5 6 7 8 9 10 11"),
        ("x[0..=0]", "1,4,i64: 0 1 2 3"),
        ("x.index(1, -1)", "3,i64: 3 7 11"),
        ("x.slice(1, 1, -1)", "3,2,i64: 1 2 5 6 9 10"),
        ("x.slice(1, -1, -5, -2)", "3,2,i64: 3 1 7 5 11 9"),
        ("x.slice(0, 5, 9).shape", "[0, 4]"),
        ("x.gather([2, 0], 0)", "2,4,i64: 8 9 10 11 0 1 2 3"),
        ("x.gather(tensor::from([3, -4], \"2,1,i64\"), 1).shape", "[3, 2, 1]"),
        ("x.split(3, 1)[0].shape", "[3, 3]"),
        ("x.split(3, 1)[1]", "3,1,i64: 3 7 11"),
        ("x.chunk(2, 1)[1]", "3,2,i64: 2 3 6 7 10 11"),
        ("x.chunk(3, -1).len()", "2"),
        ("x.chunk(9223372036854775807, 0).len()", "3"),
        ("x.split(9223372036854775807, 0).len()", "1"),
        ("x.split([1, 3], 1)[0]", "3,1,i64: 0 4 8"),
        ("x.rows(2).shape", "[2, 4]"),
        ("x.len()", "3"),
    ];
    let table: Vec<(String, &str)> =
        table.iter().map(|(script, expected)| (format!("{x}{script}"), *expected)).collect();
    check(&table.iter().map(|(script, expected)| (script.as_str(), *expected)).collect::<Vec<_>>());
}

#[test]
fn tensors_are_rearranged_joined_and_repeated() {
    check(&[
        ("tensor::arange(6).reshape([2, -1]).transpose()", "3,2,i64: 0 3 1 4 2 5"),
        ("tensor::arange(6).reshape([1, 2, 3]).transpose([2, 0, 1]).shape", "[3, 1, 2]"),
        ("tensor::arange(3).unsqueeze([0, -1]).shape", "[1, 3, 1]"),
        ("tensor::arange(3).unsqueeze([0, -1]).squeeze(0).shape", "[3, 1]"),
        ("tensor::arange(2).unsqueeze(1).expand([1, 3])", "2,3,i64: 0 0 0 1 1 1"),
        ("tensor::arange(3).tile([2])", "6,i64: 0 1 2 0 1 2"),
        ("tensor::arange(2).pad([1, 2])", "5,i64: 0 0 1 0 0"),
        ("tensor::arange(3).pad([2, 0], \"reflect\")", "5,i64: 2 1 0 1 2"),
        ("tensor::arange(2).pad([0, 1], 9)", "3,i64: 0 1 9"),
        ("tensor::concat([tensor::arange(2), tensor::arange(1)], 0)", "3,i64: 0 1 0"),
        ("tensor::stack([tensor::arange(2), tensor::arange(2)], 1)", "2,2,i64: 0 0 1 1"),
        ("tensor::from([2, 0], \"2,i64\").one_hot(3)", "2,3,f32: 0 0 1 1 0 0"),
        ("tensor::eye(2).matmul(tensor::linspace(1, 2, 2))", "2,f32: 1 2"),
    ]);
}

#[test]
fn reductions_and_order_match_numpy() {
    let x = "let x = tensor::from([1, 5, 2, 9, 0, 3], \"2,3,f32\"); ";
    let table = [
        ("x.sum()", "f32: 20"),
        ("x.sum(0)", "3,f32: 10 5 5"),
        ("x.mean(-1, true)", "2,1,f32: 2.6667 4"),
        ("x.max([0, 1]).item()", "9.0"),
        ("x.min(1)", "2,f32: 1 0"),
        ("x.prod(1)", "2,f32: 10 0"),
        ("x.norm()", "f32: 10.9545"),
        ("x.cast(\"i64\").sum(1)", "2,i64: 8 12"),
        ("x.argmax()", "2,i64: 1 0"),
        ("x.argmin(0)", "3,i64: 0 1 0"),
        ("x.sort()", "2,3,f32: 1 2 5 0 3 9"),
        ("x.argsort(0)", "2,3,i64: 0 1 0 1 0 1"),
        ("x.topk(2).values", "2,2,f32: 5 2 9 3"),
        ("x.topk(1, 0).indices", "1,3,i64: 1 0 1"),
        ("x.cumsum(1)", "2,3,f32: 1 6 8 9 9 12"),
        ("x.softmax()", "2,3,f32: 0.0171 0.9362 0.0466 0.9974 0.0001 0.0025"),
        ("x.log_softmax(0).shape", "[2, 3]"),
        ("x.allclose(x * 1.000001)", "true"),
        ("x.allclose(x + 1)", "false"),
    ];
    let table: Vec<(String, &str)> =
        table.iter().map(|(script, expected)| (format!("{x}{script}"), *expected)).collect();
    check(&table.iter().map(|(script, expected)| (script.as_str(), *expected)).collect::<Vec<_>>());
}

#[test]
fn random_tensors_are_the_same_on_every_machine() {
    // From an implementation of ChaCha8 in Python, with the functions of the module `math`.
    check(&[
        (r#"tensor::random_normal("3,f32", 42)"#, "3,f32: -0.7348 -0.3554 1.2167"),
        (r#"tensor::random_uniform("3,f32", 42)"#, "3,f32: 0.012 0.0407 0.5807"),
        (r#"tensor::random_int("5,i64", 42, 0, 1000)"#, "5,i64: 644 441 39 378 616"),
        (r#"tensor::random_normal("2,f32", 1).allclose(tensor::random_normal("2,f32", 2))"#, "false"),
        (r#"let x = tensor::random_normal("10000,f32", 7, 3, 2); (x.mean() - 3).abs().item() < 0.1"#, "true"),
    ]);
}

#[test]
fn a_tensor_that_exceeds_the_memory_of_the_script_is_refused_before_it_is_allocated() {
    for script in [
        r#"tensor::zeros("1152921504606846976,f32")"#,
        r#"tensor::random_normal("1073741824,f32", 1)"#,
        "tensor::arange(1 << 60)",
        "tensor::linspace(0, 1, 1 << 60)",
        "tensor::eye(1 << 40)",
        "tensor::arange(2).unsqueeze(1).expand([2, 1 << 60])",
        "tensor::arange(2).tile([1 << 62])",
        "tensor::arange(2).pad([1 << 60, 1 << 60])",
        "tensor::arange(2).one_hot(1 << 60)",
        "let x = tensor::arange(100000).unsqueeze(1); x + x.transpose()",
        "let x = tensor::zeros(\"100000,1,f32\"); x.matmul(x.transpose())",
        "tensor::zeros(\"1000,1000,f32\").gather(tensor::zeros(\"1000000,i64\"), 0)",
        "let x = tensor::zeros(\"4000000,f32\"); let kept = []; loop { kept.push(x + 1); }",
        "let x = tensor::zeros(\"4000000,f32\"); let kept = []; loop { kept.push((x + 1)[0..1000000]); }",
    ] {
        let error = evaluate(script).map(|value| text(&value)).unwrap_err();
        assert!(
            error.contains("`script_memory_bytes`") || error.contains("larger than this machine"),
            "{script}: {error}"
        );
    }
    let error = evaluate("tensor::arange(2).tile([1 << 30])").unwrap_err();
    let expected = "`tile` of `2,i64` and [1073741824]: the script requested 17179869184 bytes, but may hold only 67108864 in \
                    total (`script_memory_bytes`)";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn wrong_arguments_are_refused_with_the_function_and_the_shapes() {
    for (script, expected) in [
        (
            "tensor::arange(2) + tensor::arange(3)",
            "`+` of `2,i64` and [0, 1, 2]: [2] and [3] cannot be broadcast together",
        ),
        ("tensor::arange(2) > \"x\"", "`>`: the other operand must be a tensor or a number, not `string`"),
        ("\"x\" == tensor::arange(2)", "`==`: the other operand must be a tensor or a number, not `string`"),
        (
            "tensor::arange(2) + 0.5",
            "`+`: a tensor of `i64` and the number `0.5` cannot be combined; convert the tensor",
        ),
        ("tensor::zeros(\"2,u8\") + 300", "`+`: `300` is out of the range of `u8`"),
        ("tensor::arange(2).sum(3)", "`sum` of `2,i64`"),
        ("tensor::arange(2).mean()", "`mean` of `2,i64`: the mean of integers and booleans needs a float type"),
        ("tensor::arange(2)[5]", "`[]` of `2,i64`"),
        ("tensor::arange(2).transpose([0, 0])", "`transpose` of `2,i64`"),
        ("tensor::arange(2).split(0, 0)", "`split`: the size of a part is 0"),
        ("tensor::arange(2).chunk(0, 0)", "`chunk`: the number of parts is 0"),
        ("tensor::arange(2).split(1, 3)", "`split` of `2,i64`: there is no axis 3"),
        (
            "tensor::zeros(\"30000000,u8\").split(1, 0)",
            "a dimension can be split into at most 65536 parts, not 30000000",
        ),
        ("tensor::arange(2).split([], 0)", "`split` of `2,i64`: a tensor can be split into 1 to 65536 parts, not 0"),
        (
            "tensor::arange(2) / 2.0",
            "`/`: a tensor of `i64` and the number `2.0` cannot be combined; convert the tensor",
        ),
        (r#"tensor::from([300], "1,u8")"#, "`300` is not a number of `u8`"),
        (r#"tensor::from([1.5], "1,i64")"#, "`1.5` is not a number of `i64`"),
        (r#"tensor::full("2,u8", -1)"#, "`full`: `-1` is not a number of `u8`"),
        (r#"tensor::from([9007199254740993, 0.5], "2,i64")"#, "`0.5` is not a number of `i64`"),
        ("-(tensor::arange(2) > 0)", "`-` of `2,bool`: booleans have no negative: `!` inverts them"),
        (r#"tensor::zeros("0,f32").max()"#, "`max` of `0,f32`: there are no elements"),
        ("tensor::arange(2).gather([7], 0)", "index 7 is out of range for size 2"),
        ("tensor::arange(2).any()", "`any` of `2,i64`: the tensor must contain booleans"),
        ("tensor::arange(2) / 0", "integer division by zero"),
        ("tensor::arange(2).item()", "`item` needs a tensor of one element, not `2,i64`"),
        ("tensor::concat([tensor::arange(2), 1], 0)", "`concat`: the array must contain only tensors, not `int`"),
        ("tensor::arange(0).argmax()", "there are no elements"),
        ("tensor::arange(2).topk(3)", "`topk` of `2,i64`"),
        ("tensor::random_int(\"2,i8\", 1, 0, 1000)", "`random_int`: 0 to 1000 exceeds the range of `i8`"),
        ("tensor::arange(3).reshape([2, -1])", "`reshape` of `3,i64`"),
        (
            "tensor::arange(3).expand([-1])",
            "`expand` of `3,i64`: a size must be at least 0, not -1; 1 keeps a dimension",
        ),
    ] {
        let error = evaluate(script).map(|value| text(&value)).unwrap_err();
        assert!(error.contains(expected), "{script}: {error}");
    }
}
