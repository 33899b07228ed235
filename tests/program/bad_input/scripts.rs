//! Weights, texts and tokens that do not fit the model, and operations of scripts that cannot be computed: each error
//! names the script with its line, or the file, and the shapes or numbers that do not fit.

use serde_json::json;

use crate::support::program;
use crate::support::site::Site;

/// A model of tokens: 16 of a vocabulary of 50.
const TOKEN_MODEL: &str = r#"
fn create_model(config) {
    let graph = nn::graph("tiny");
    let words = graph.parameter("words", "50,4,f32", 0.1);
    let x = words.gather(graph.input("input_ids", "N,16,i64"), 0).mean([1], false).linear("fc", 3);
    graph.output("scores", x);
    graph.weights(config.weights, config.seed);
    graph
}
"#;
const TOKEN_FORWARD: &str = "fn model_forward(model, batch) { model.run([batch.input_ids])[0] }\n";
const TOKEN_EVALUATOR: &str =
    "fn evaluator(output, truth) { metric::mean(\"rows\", output.shape[0].to_float(), output.shape[0]) }\n";

fn site() -> Site {
    Site::new("{engine: \"null\"}")
}

/// Returns a site whose case reads tokens as its dataloader describes them.
fn token_site(dataset: &str) -> Site {
    let site = site();
    site.write("scripts/tiny/dataloader.rhai", &format!("fn build_dataloader(config) {{\n    {dataset}\n}}\n"));
    site.write("scripts/tiny/model.rhai", TOKEN_MODEL);
    site.write("scripts/tiny/forward.rhai", TOKEN_FORWARD);
    site.write("scripts/tiny/evaluator.rhai", TOKEN_EVALUATOR);
    site
}

/// Writes a tokenizer with a word for each number below `count`.
fn write_tokenizer(site: &Site, count: usize) {
    let mut words: serde_json::Map<String, serde_json::Value> =
        (1..count).map(|number| (format!("w{number}"), json!(number))).collect();
    words.insert("[UNK]".to_owned(), json!(0));
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    });
    site.write("data/tokenizer.json", &tokenizer.to_string());
}

/// Runs the case, which must be refused or fail, and returns the first error.
fn error(site: &Site) -> String {
    let output = program::flagperf(site.path(), &["run", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let reason = match output.status.code() {
        Some(2) => errors.lines().find(|line| line.starts_with("error: ")).expect("an error").to_owned(),
        Some(1) => {
            let record: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a record");
            format!("failed: {}", record["failures"][0]["reason"].as_str().expect("a reason"))
        }
        code => panic!("{code:?}: {errors}"),
    };
    let reason = reason.split("\n        ").next().unwrap_or_default();
    reason.replace(&site.path().canonicalize().expect("a folder").display().to_string(), "[checkout]")
}

#[test]
fn weights_of_another_model_or_size_are_refused_with_the_names_and_the_shapes() {
    let site = site();
    site.write("configs/tiny/parameters.yaml", "samples: 10\nweights: other.safetensors\nseed: 0\n");
    let write = |tensors: &[(&str, Vec<usize>)]| {
        let zeros = vec![0; 1 << 16];
        let views = tensors.iter().map(|(name, shape)| {
            let bytes = &zeros[..4 * shape.iter().product::<usize>()];
            (
                *name,
                safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes).expect("a view"),
            )
        });
        let file = safetensors::serialize(views, None).expect("a file");
        std::fs::write(site.path().join("data/other.safetensors"), file).expect("a file");
        error(&site)
    };
    let other_model = write(&[("bert.embeddings.weight", vec![8, 4]), ("bert.pooler.bias", vec![4])]);
    let other_size = write(&[
        ("conv.weight", vec![8, 3, 3, 3]),
        ("conv.bias", vec![8]),
        ("fc.weight", vec![1000, 8]),
        ("fc.bias", vec![1000]),
    ]);
    insta::assert_snapshot!([other_model, other_size].join("\n"), @r"
    error: scripts/tiny/model.rhai:7:11: the weights in `data/other.safetensors` do not match graph `tiny`: missing (4): `conv.weight`, `conv.bias`, `fc.weight`, `fc.bias`; unexpected (2): `bert.embeddings.weight`, `bert.pooler.bias`
    error: scripts/tiny/model.rhai:7:11: the weights in `data/other.safetensors` do not match graph `tiny`: mismatched (3): `conv.weight` is `4,3,3,3,f32` in the graph and `8,3,3,3,f32` in the file; `conv.bias` is `4,f32` in the graph and `8,f32` in the file; `fc.weight` is `1000,4,f32` in the graph and `1000,8,f32` in the file
    ");
}

#[test]
fn a_tokenizer_or_tokens_of_another_model_are_refused_with_the_numbers() {
    let prompts = "data::prompts(\"p.txt\", #{tokenizer: \"tokenizer.json\", length: 16, vocabulary: 50})";
    let site = token_site(prompts);
    site.write("data/p.txt", "w1 w2\n");
    write_tokenizer(&site, 60);
    let tokenizer = error(&site);
    let site = token_site("data::tokens(\"t.bin\", #{stored: \"u16\", length: 16, vocabulary: 50})");
    let one = "\u{1}\0";
    site.write("data/t.bin", &[&one.repeat(5), "7\0", &one.repeat(14)].concat());
    let tokens = error(&site);
    insta::assert_snapshot!([tokenizer, tokens].join("\n"), @r"
    error: scripts/tiny/dataloader.rhai:2:11: dataset of case `tiny`: `tokenizer.json`: the tokenizer has 60 tokens, but the model only 50: it belongs to another model
    failed: t.bin: tokens from 0: token 55 at position 5 is outside the vocabulary of 50: does the tokenizer match the model?
    ");
}

#[test]
fn a_prompt_that_is_too_long_or_not_text_is_named_with_its_line() {
    let site = token_site("data::prompts(\"p.txt\", #{tokenizer: \"tokenizer.json\", length: 16, vocabulary: 50})");
    write_tokenizer(&site, 50);
    site.write("data/p.txt", &format!("w1\n{}\n", "w2 ".repeat(17)));
    let long = error(&site);
    std::fs::write(site.path().join("data/p.txt"), b"w1\nw2 \xff\n").expect("a file");
    let bytes = error(&site);
    insta::assert_snapshot!([long, bytes].join("\n"), @r"
    failed: p.txt:2: the prompt has 17 tokens, more than `length: 16` allows: use a larger length or `truncate: true`
    failed: p.txt:2: is not UTF-8 text (byte 4)
    ");
}

#[test]
fn labels_outside_the_classes_are_named() {
    let site = site();
    let labels = "labels: #{spec: \"i64\", min: 1000, max: 1001}";
    let dataset =
        format!("data::synthetic(#{{samples: 10, inputs: #{{images: \"3,8,8,f32\"}}, truth: #{{{labels}}}}})");
    site.write("scripts/tiny/dataloader.rhai", &format!("fn build_dataloader(config) {{ {dataset} }}\n"));
    insta::assert_snapshot!(error(&site), @"failed: scripts/tiny/evaluator.rhai:2:13: label 1000 is out of range: the model has 1000 classes, 0 to 999; does the class list match the model?");
}

#[test]
fn an_operation_that_cannot_be_computed_is_named_with_its_line_and_the_shapes() {
    let site = site();
    let forward = |body: &str| {
        let script = format!(
            "fn model_forward(model, batch) {{\n    let x = batch.images;\n    {body}\n    model.run([x])[0]\n}}\n"
        );
        site.write("scripts/tiny/forward.rhai", &script);
        error(&site)
    };
    let errors = [
        "x = tensor::zeros(\"1152921504606846976,f32\");",
        "x = tensor::zeros(\"1073741824,1073741824,f32\");",
        "x = x.expand([1 << 60, 4, 3, 8, 8]);",
        "x = x.sum(7);",
        "x = x + tensor::zeros(\"5,f32\");",
        "x = x.matmul(tensor::zeros(\"7,2,f32\"));",
        "x = tensor::concat([x, tensor::zeros(\"4,3,8,f32\")], 0);",
        "x = x.reshape([4, 7]);",
        "x = tensor::zeros(\"4,3,9,9,f32\");",
        "x = model.outputs()[1];",
    ]
    .map(forward);
    insta::assert_snapshot!(errors.join("\n"), @r"
    failed: scripts/tiny/forward.rhai:3:17: `1152921504606846976,f32`: `zeros`: the script requested 4611686018427387904 bytes, but may hold only 1073741824 in total (`script_memory_bytes`)
    failed: scripts/tiny/forward.rhai:3:17: `1073741824,1073741824,f32`: `zeros`: the script requested 4611686018427387904 bytes, but may hold only 1073741824 in total (`script_memory_bytes`)
    failed: scripts/tiny/forward.rhai:3:11: `expand` of `4,3,8,8,f32` and [1152921504606846976, 4, 3, 8, 8]: the script requested 18446744073709551615 bytes, but may hold only 1073741824 in total (`script_memory_bytes`)
    failed: scripts/tiny/forward.rhai:3:11: `sum` of `4,3,8,8,f32` and [7]: axis 7 is out of range for rank 4
    failed: scripts/tiny/forward.rhai:3:11: `+` of `4,3,8,8,f32` and `5,f32`: [4, 3, 8, 8] and [5] cannot be broadcast together
    failed: scripts/tiny/forward.rhai:3:11: `matmul` of `4,3,8,8,f32` and `7,2,f32`: [4, 3, 8, 8] and [7, 2] cannot be multiplied as matrices
    failed: scripts/tiny/forward.rhai:3:17: `concat` of `4,3,8,8,f32` and `4,3,8,f32`: tensors can be joined only if their other dimensions are equal
    failed: scripts/tiny/forward.rhai:3:11: `reshape` of `4,3,8,8,f32` and [4, 7]: [4, 3, 8, 8] cannot be reshaped to [4, 7]
    failed: scripts/tiny/forward.rhai:4:11: input `images` is `4,3,9,9,f32`, but the model expects `N,3,8,8,f32`
    failed: scripts/tiny/forward.rhai:3:25: array index 1 out of bounds: only 1 element in array
    ");
}

#[test]
fn scores_that_are_nan_are_refused_instead_of_dropped() {
    let site = site();
    let scores = "tensor::zeros(\"2,3,1,f32\") / 0.0";
    let script = format!(
        "fn model_forward(model, batch) {{\n    boxes::nms(tensor::zeros(\"2,3,4,f32\"), {scores}, #{{}}).scores\n}}\n"
    );
    site.write("scripts/tiny/forward.rhai", &script);
    let reason = error(&site);
    assert!(
        reason.contains("forward.rhai:2:") && reason.contains("`nms`: a score of box 0 of image 0 is NaN"),
        "{reason}"
    );
}

#[test]
fn a_template_without_the_place_of_the_prompt_is_refused() {
    let site = token_site("data::prompts(\"p.txt\", #{tokenizer: \"tokenizer.json\", length: 16, template: \"no\"})");
    write_tokenizer(&site, 50);
    site.write("data/p.txt", "w1\n");
    let reason = error(&site);
    assert!(reason.contains("dataloader.rhai:2:"), "{reason}");
    assert!(reason.contains("`prompts`: the `template` lacks `{}`, which stands for the prompt"), "{reason}");
}

#[test]
fn a_graph_that_cannot_be_built_is_named_with_its_line_and_the_shapes() {
    let site = site();
    let model = |body: &str| {
        let script = format!(
            "fn create_model(config) {{\n    let graph = nn::graph(\"tiny\");\n    let x = graph.input(\"images\", \"N,3,8,8,f32\");\n    {body}\n    graph.output(\"scores\", x);\n    graph\n}}\n"
        );
        site.write("scripts/tiny/model.rhai", &script);
        error(&site)
    };
    let errors = [
        "x += graph.parameter(\"w\", \"1152921504606846976,f32\", 0.1);",
        "x = x.sum([7], false);",
        "x += graph.parameter(\"w\", \"5,f32\", 0.1);",
        "x = x.matmul(graph.parameter(\"w\", \"7,2,f32\", 0.1));",
        "x = x.expand([\"N\", 3, 8, 9]);",
    ]
    .map(model);
    insta::assert_snapshot!(errors.join("\n"), @r"
    error: scripts/tiny/model.rhai:4:16: weight `w` of `1152921504606846976,f32` has too many elements (at most 2147483648)
    error: scripts/tiny/model.rhai:4:11: layer `sum`: axis 7 is out of range: there are 4 dimensions, 0 to 3
    error: scripts/tiny/model.rhai:4:7: layer `add` (Add of `N,3,8,8,f32`, `5,f32`): the shapes of the inputs are incompatible
    error: scripts/tiny/model.rhai:4:11: layer `matmul` (MatMul of `N,3,8,8,f32`, `7,2,f32`): inner dimensions: 8 and 7 differ
    error: scripts/tiny/model.rhai:4:11: layer `expand` (Expand of `N,3,8,8,f32`, `4,i64`): the shapes of the inputs are incompatible
    ");
}
