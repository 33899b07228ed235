//! Tests of prompts.

use std::sync::Arc;

use super::*;
use crate::padding::PaddingSide;
use crate::tokenizer::tests::words;
use crate::{BadSamplePolicy, Loader, LoaderOptions, MemoryLender};
use flagperf_core::lent_memory::HeapMemory;

fn options() -> PromptOptions {
    let padding =
        PaddingOptions { buckets: vec![5], to_batch: false, pad: 9, side: PaddingSide::Right, truncate: false };
    PromptOptions {
        file: "p.txt".into(),
        key: None,
        template: None,
        tokenizer: TokenizerFiles::Json("t.json".into()),
        vocabulary: None,
        special_tokens: false,
        padding,
        texts: Vec::new(),
        lists: Vec::new(),
    }
}

fn list(name: &str, length: usize, dtype: DType, role: FieldRole) -> NumberList {
    NumberList { name: name.to_owned(), length, dtype, role }
}

fn open(text: &[u8], options: &PromptOptions) -> Result<Prompts, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.txt"), text).unwrap();
    std::fs::write(folder.path().join("t.json"), words()).unwrap();
    Prompts::open(&DataRoot::open(folder.path()).unwrap(), options).map_err(|error| error.to_string())
}

/// Returns the values of every field of a sample, texts without their padding.
fn read(prompts: &Prompts, index: usize) -> Result<Vec<Vec<i64>>, String> {
    let sizes = prompts.fields().iter().map(|field| {
        let elements: usize = field.spec.fixed_shape().unwrap().iter().product();
        elements * field.spec.dtype.size()
    });
    let mut memory: Vec<Vec<u8>> = sizes.map(|size| vec![7; size]).collect();
    let mut slices: Vec<&mut [u8]> = memory.iter_mut().map(Vec::as_mut_slice).collect();
    prompts.read(index, &mut slices).map_err(|error| error.to_string())?;
    let numbers = |(field, bytes): (&Field, &Vec<u8>)| match field.spec.dtype {
        DType::F32 => bytemuck::pod_collect_to_vec::<u8, u32>(bytes).into_iter().map(i64::from).collect(),
        DType::U8 => bytes.iter().map(|byte| i64::from(*byte)).take_while(|byte| *byte != 0).collect(),
        _ => bytemuck::pod_collect_to_vec(bytes),
    };
    Ok(prompts.fields().iter().zip(&memory).map(numbers).collect())
}

#[test]
fn a_tokenizer_without_the_token_that_pads_belongs_to_another_model() {
    let error = |pad: i64| {
        let padding = PaddingOptions { pad, ..options().padding };
        open(b"the cat", &PromptOptions { vocabulary: Some(1000), padding, ..options() }).err()
    };
    assert_eq!(error(6), None);
    let expected =
        "`t.json`: the tokenizer has no token 999, which pads (`pad`), among its 8: it belongs to another model";
    assert_eq!(error(999).as_deref(), Some(expected));
}

#[test]
fn a_prompt_is_padded_with_its_mask_and_length() {
    let prompts = open(b"the cat sat\n\nwho\n", &options()).unwrap();
    assert_eq!(prompts.len(), 2);
    let expected = [vec![4, 5, 6, 9, 9], vec![1, 1, 1, 0, 0], vec![3], vec![4, 5, 6, -1, -1]];
    assert_eq!(read(&prompts, 0).unwrap(), expected);
    let padding = PaddingOptions { side: PaddingSide::Left, ..options().padding };
    let prompts = open(b"the cat sat", &PromptOptions { padding, special_tokens: true, ..options() }).unwrap();
    assert_eq!(read(&prompts, 0).unwrap()[0], [1, 4, 5, 6, 2]);
    let padding = PaddingOptions { side: PaddingSide::Left, ..options().padding };
    let prompts = open(b"cat", &PromptOptions { padding, ..options() }).unwrap();
    assert_eq!(read(&prompts, 0).unwrap()[..2], [vec![9, 9, 9, 9, 5], vec![0, 0, 0, 0, 1]]);
}

#[test]
fn json_lines_have_a_template_and_further_texts() {
    let options = PromptOptions {
        key: Some("question".into()),
        template: Some("who {}".into()),
        texts: vec![("answer".into(), 8)],
        ..options()
    };
    let prompts = open(b"{\"question\": \"sat\", \"answer\": \"cat\"}\n{\"question\": 1}\n[", &options).unwrap();
    let sample = read(&prompts, 0).unwrap();
    assert_eq!((&sample[0], &sample[4]), (&vec![7, 6, 9, 9, 9], &b"cat".map(i64::from).to_vec()));
    assert_eq!(read(&prompts, 1).unwrap_err(), "p.txt:2: has no key `answer`");
    assert!(read(&prompts, 2).unwrap_err().starts_with("p.txt:3: is not JSON: "));
}

#[test]
fn json_lines_have_further_lists_of_a_fixed_length() {
    let lists = vec![list("answer", 2, DType::I64, FieldRole::Truth)];
    let options = PromptOptions { key: Some("q".into()), lists, ..options() };
    let text = b"{\"q\": \"sat\", \"answer\": [7, -1]}\n{\"q\": \"sat\", \"answer\": [7]}\n{\"q\": \"sat\", \"answer\": [7, 0.5]}\n";
    let prompts = open(text, &options).unwrap();
    assert_eq!(read(&prompts, 0).unwrap()[4], [7, -1]);
    for (index, line) in [(1, 2), (2, 3)] {
        let expected = format!("p.txt:{line}: `answer` must be a list of 2 whole numbers");
        assert_eq!(read(&prompts, index).unwrap_err(), expected);
    }
}

#[test]
fn json_lines_have_numbers_as_truth() {
    let scores = vec![list("score", 1, DType::F32, FieldRole::Truth), list("box", 2, DType::F32, FieldRole::Truth)];
    let options = PromptOptions { key: Some("q".into()), lists: scores, ..options() };
    let text = b"{\"q\": \"sat\", \"score\": 3.25, \"box\": [1, -0.5]}\n{\"q\": \"sat\", \"score\": \"high\", \"box\": [1, 2]}\n";
    let prompts = open(text, &options).unwrap();
    assert_eq!(prompts.fields()[5].spec.to_string(), "2,f32");
    let bits = |values: &[f32]| values.iter().map(|value| i64::from(value.to_bits())).collect::<Vec<_>>();
    assert_eq!(read(&prompts, 0).unwrap()[4..], [bits(&[3.25]), bits(&[1.0, -0.5])]);
    assert_eq!(read(&prompts, 1).unwrap_err(), "p.txt:2: `score` must be a number");
}

#[test]
fn a_list_of_json_lines_may_be_an_input() {
    let lists = [("answer", FieldRole::Truth), ("seed", FieldRole::Input)];
    let lists = lists.map(|(name, role)| list(name, 1, DType::I64, role)).to_vec();
    let options = PromptOptions { key: Some("q".into()), lists, ..options() };
    let prompts = open(b"{\"q\": \"sat\", \"seed\": [8], \"answer\": [7]}\n", &options).unwrap();
    let roles = prompts.fields()[4..].iter().map(|field| (field.name.as_str(), field.role));
    assert_eq!(roles.collect::<Vec<_>>(), [("answer", FieldRole::Truth), ("seed", FieldRole::Input)]);
    assert_eq!(read(&prompts, 0).unwrap()[4..], [vec![7], vec![8]]);
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_or_cut() {
    let text = b"cat\nthe cat sat the cat sat\n";
    let expected = "p.txt:2: the prompt has 6 tokens, more than `length: 5` allows: use a larger length or \
                    `truncate: true`";
    assert_eq!(read(&open(text, &options()).unwrap(), 1).unwrap_err(), expected);
    let padding = PaddingOptions { to_batch: true, ..options().padding };
    let prompts = open(text, &PromptOptions { padding, ..options() }).unwrap();
    assert_eq!(read(&prompts, 1).unwrap_err(), expected.replace("`length: 5`", "`max_length: 5`"));
    let padding = PaddingOptions { truncate: true, ..options().padding };
    let prompts = open(text, &PromptOptions { padding, ..options() }).unwrap();
    assert_eq!(read(&prompts, 1).unwrap()[0], [4, 5, 6, 4, 5]);
    // The special tokens remain.
    let special = PromptOptions { padding: prompts.options.padding.clone(), special_tokens: true, ..options() };
    assert_eq!(read(&open(text, &special).unwrap(), 1).unwrap()[0], [1, 4, 5, 6, 2]);
}

#[test]
fn with_several_buckets_the_smallest_that_holds_the_longest_prompt_is_used() {
    let padding = PaddingOptions { buckets: vec![2, 4, 8], ..options().padding };
    let prompts = open(b"cat\nthe cat sat\n", &PromptOptions { padding: padding.clone(), ..options() }).unwrap();
    assert_eq!(prompts.fields()[0].spec.to_string(), "4,i64");
    let long = open(b"cat\n\xff\n", &PromptOptions { padding, ..options() }).err().unwrap();
    assert_eq!(long, "`p.txt`: p.txt:2: is not UTF-8 text (byte 1)");
}

#[test]
fn padded_to_the_batch_each_batch_is_as_long_as_its_longest_prompt() {
    for (side, first, second) in [
        (PaddingSide::Right, [5, 9, 4, 5], [4, 5, 6, 7, 6, 9, 9, 9]),
        (PaddingSide::Left, [9, 5, 4, 5], [4, 5, 6, 7, 9, 9, 9, 6]),
    ] {
        let padding = PaddingOptions { to_batch: true, buckets: vec![6], side, ..options().padding };
        let prompts =
            open(b"cat\nthe cat\nthe cat sat who\nsat\nwho\n", &PromptOptions { padding, ..options() }).unwrap();
        let options = LoaderOptions {
            batch_size: 2,
            workers: 2,
            prefetch: 1,
            pad_last_batch: true,
            on_bad_sample: BadSamplePolicy::Fail,
            preloaded: false,
        };
        let lend: MemoryLender<'_> = &mut |_, bytes| Ok(Box::new(HeapMemory::zeroed(bytes)?));
        let mut loader = Loader::new(Arc::new(prompts), options, lend).unwrap();
        // A slot is filled again after a shorter batch.
        for _ in 0..2 {
            loader.start_pass().unwrap();
            let mut next = || {
                let batch = loader.next().unwrap().unwrap();
                let found: Vec<_> = batch
                    .inputs
                    .values()
                    .map(|t| (t.shape().to_vec(), t.as_slice::<i64>().unwrap().to_vec()))
                    .collect();
                assert_eq!(batch.truth["tokens"].shape(), found[0].0);
                loader.recycle(batch).unwrap();
                found
            };
            let batch = next();
            assert_eq!(batch[0], (vec![2, 2], first.to_vec()));
            assert_eq!(batch[2], (vec![2], vec![1, 2]));
            assert_eq!(next()[0], (vec![2, 4], second.to_vec()));
            // The row that only fills the last batch is zero.
            assert_eq!(next()[..2], [(vec![2, 1], vec![7, 0]), (vec![2, 1], vec![1, 0])]);
        }
    }
}
