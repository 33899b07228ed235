//! Computes values from a name and an index, bit for bit the same in Rust and in Python (`formula.py`).

use flagperf_onnx::{Graph, Tensor, WeightRole};

/// Returns the 64-bit FNV-1a hash of the name's bytes.
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |value, byte| (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns `count` values in [-1, 1): the top 24 bits of SplitMix64's output at seed(name) + index.
fn uniform(name: &str, count: usize) -> impl Iterator<Item = f32> {
    let seed = seed(name);
    (1..=count as u64).map(move |index| {
        let mut z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    })
}

/// Returns a weight by its state_dict name, scaled so that activations stay near one in a network of any depth.
pub fn weight(name: &str, shape: &[usize]) -> Vec<f32> {
    let values = uniform(name, shape.iter().product());
    if shape.len() > 1 {
        let fan_in: usize = shape[1..].iter().product();
        let bound = (6.0 / fan_in as f64).sqrt() as f32;
        values.map(|u| u * bound).collect()
    } else if name.ends_with("running_var") {
        values.map(|u| u * 0.5 + 1.0).collect()
    } else if name.ends_with("weight") {
        values.map(|u| u * 0.25 + 0.5).collect()
    } else if name == "fc.bias" {
        values.map(|u| u + 2.5).collect()
    } else {
        values.map(|u| u * 0.125).collect()
    }
}

/// Returns every weight of a graph under its name, as in a state_dict; the graph's constants are excluded.
pub fn weights(graph: &Graph) -> Vec<(String, Tensor)> {
    let declared = graph.weights.iter().filter(|(_, weight)| weight.role != WeightRole::Constant);
    let made = declared.map(|(name, declared)| {
        let shape = declared.spec.fixed_shape().unwrap();
        let values = weight(name, &shape);
        (name.clone(), Tensor::from_vec(shape, values).unwrap())
    });
    made.collect()
}

/// Returns values in [-1, 1) of the given shape.
pub fn tensor(name: &str, shape: &[usize]) -> Tensor {
    Tensor::from_vec(shape, uniform(name, shape.iter().product()).collect()).unwrap()
}

/// Returns integers from 0 to below `count`, as i64.
pub fn integers(name: &str, shape: &[usize], count: u32) -> Tensor {
    let scaled = |u: f32| ((f64::from(u) + 1.0) / 2.0 * f64::from(count)).floor() as i64;
    Tensor::from_vec(shape, uniform(name, shape.iter().product()).map(scaled).collect()).unwrap()
}

/// Returns images as `count,3,224,224,f32` in [-2, 2): squares of 32 by 32 pixels of one colour.
pub fn images(count: usize) -> Tensor {
    let squares: Vec<f32> = uniform("images", count * 3 * 7 * 7).map(|u| 2.0 * u).collect();
    let spread = |plane: &[f32]| (0..224 * 224).map(|at| plane[at / 224 / 32 * 7 + at % 224 / 32]).collect::<Vec<_>>();
    let pixels = squares.chunks_exact(7 * 7).flat_map(spread).collect();
    Tensor::from_vec([count, 3, 224, 224], pixels).unwrap()
}

#[test]
fn the_formula_computes_the_same_values_as_python() {
    let bits = |name: &str, shape: &[usize]| weight(name, shape).into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits("conv1.weight", &[64, 3, 7, 7])[..3], [1_016_411_004, 1_036_705_823, 3_192_218_924]);
    assert_eq!(bits("bn1.running_var", &[2]), [1_066_546_978, 1_067_758_678]);
    assert_eq!(bits("bn1.weight", &[2]), [1_054_619_220, 1_059_685_948]);
    assert_eq!(bits("bn1.bias", &[2]), [3_181_893_094, 3_186_323_676]);
    assert_eq!(bits("fc.bias", &[2]), [1_075_651_502, 1_075_677_342]);
    assert_eq!(images(2).as_slice::<f32>().unwrap().last().unwrap().to_bits(), 1_067_171_768);
}
