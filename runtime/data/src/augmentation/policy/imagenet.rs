//! The pairs of operations that AutoAugment learned on ImageNet (Cubuk et al. 2018, table 9), as in torchvision.

use super::magnitudes::Kind;

/// An operation, its probability, and its magnitude of 0..10; 0 for operations that have none.
type Drawn = (Kind, f64, usize);

pub const IMAGENET: [[Drawn; 2]; 25] = [
    [(Kind::Posterize, 0.4, 8), (Kind::Rotate, 0.6, 9)],
    [(Kind::Solarize, 0.6, 5), (Kind::AutoContrast, 0.6, 0)],
    [(Kind::Equalize, 0.8, 0), (Kind::Equalize, 0.6, 0)],
    [(Kind::Posterize, 0.6, 7), (Kind::Posterize, 0.6, 6)],
    [(Kind::Equalize, 0.4, 0), (Kind::Solarize, 0.2, 4)],
    [(Kind::Equalize, 0.4, 0), (Kind::Rotate, 0.8, 8)],
    [(Kind::Solarize, 0.6, 3), (Kind::Equalize, 0.6, 0)],
    [(Kind::Posterize, 0.8, 5), (Kind::Equalize, 1.0, 0)],
    [(Kind::Rotate, 0.2, 3), (Kind::Solarize, 0.6, 8)],
    [(Kind::Equalize, 0.6, 0), (Kind::Posterize, 0.4, 6)],
    [(Kind::Rotate, 0.8, 8), (Kind::Color, 0.4, 0)],
    [(Kind::Rotate, 0.4, 9), (Kind::Equalize, 0.6, 0)],
    [(Kind::Equalize, 0.0, 0), (Kind::Equalize, 0.8, 0)],
    [(Kind::Invert, 0.6, 0), (Kind::Equalize, 1.0, 0)],
    [(Kind::Color, 0.6, 4), (Kind::Contrast, 1.0, 8)],
    [(Kind::Rotate, 0.8, 8), (Kind::Color, 1.0, 2)],
    [(Kind::Color, 0.8, 8), (Kind::Solarize, 0.8, 7)],
    [(Kind::Sharpness, 0.4, 7), (Kind::Invert, 0.6, 0)],
    [(Kind::ShearX, 0.6, 5), (Kind::Equalize, 1.0, 0)],
    [(Kind::Color, 0.4, 0), (Kind::Equalize, 0.6, 0)],
    [(Kind::Equalize, 0.4, 0), (Kind::Solarize, 0.2, 4)],
    [(Kind::Solarize, 0.6, 5), (Kind::AutoContrast, 0.6, 0)],
    [(Kind::Invert, 0.6, 0), (Kind::Equalize, 1.0, 0)],
    [(Kind::Color, 0.6, 4), (Kind::Contrast, 1.0, 8)],
    [(Kind::Equalize, 0.8, 0), (Kind::Equalize, 0.6, 0)],
];
