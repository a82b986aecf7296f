//! Materials, the coefficients of every pair of them, and what restitution they will show.

use crate::restitution;

/// An elastic material.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Material {
    /// Density [kg/m3].
    pub density: f64,
    /// Young's modulus [Pa].
    pub youngs_modulus: f64,
    /// Poisson's ratio.
    pub poisson_ratio: f64,
}

/// What two materials do when they touch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairProperties {
    /// The two materials, in either order.
    pub materials: (u16, u16),
    /// Coefficient of restitution in (0, 1].
    pub restitution: f64,
    /// Coefficient of Coulomb friction.
    pub friction: f64,
}

/// Law of normal damping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Damping {
    /// Restitution independent of speed (Tsuji et al. 1992): F = alpha sqrt(m* k) overlap^(1/4) v.
    ConstantRestitution,
    /// F = c v with constant c, such that the restitution holds at `impact_speed`; it rises with speed.
    ConstantCoefficient {
        /// Speed [m/s] at which the asked restitution is met.
        impact_speed: f64,
    },
}

/// The contact model, the same for every pair of materials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContactModel {
    /// Law of normal damping.
    pub damping: Damping,
    /// True: normal forces never attract.
    pub clip: bool,
    /// Tangential damper over effective mass [1/s]: friction is min(mu Fn, rate m* |slip speed|).
    pub tangential_rate: f64,
}

/// Coefficients of a pair of materials as the kernel uses them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Coefficients {
    /// 4/3 E* [Pa]; 1/E* = (1 - nu1^2)/E1 + (1 - nu2^2)/E2.
    pub(crate) stiffness: f64,
    /// Constant restitution: alpha = sqrt(5) zeta. Constant coefficient: chat^5 v stiffness^2, of which the fifth
    /// root after multiplication by R* m*^3 is the coefficient c.
    pub(crate) damping: f64,
    /// Coulomb friction.
    pub(crate) friction: f64,
}

/// Coefficients of all pairs of materials.
#[derive(Clone, Debug, PartialEq)]
pub struct MaterialTable {
    materials: Vec<Material>,
    properties: Vec<PairProperties>,
    pub(crate) coefficients: Vec<Coefficients>,
    pub(crate) model: ContactModel,
}

/// Why a table of materials cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MaterialError {
    /// No materials, or too many for a 16-bit index.
    #[error("{0} materials given, 1 to 65536 are possible")]
    Count(usize),
    /// A pair is missing.
    #[error("no restitution and friction given for materials {0} and {1}")]
    MissingPair(usize, usize),
    /// A number is out of its range.
    #[error("{field} of material {material} is {found}, must be {expected}")]
    Material {
        /// Index of the material.
        material: usize,
        /// Name of the number.
        field: &'static str,
        /// Value found.
        found: f64,
        /// What would be right.
        expected: &'static str,
    },
    /// A number of a pair is out of its range.
    #[error("{field} of materials {first} and {second} is {found}, must be {expected}")]
    Pair {
        /// Index of the first material.
        first: usize,
        /// Index of the second material.
        second: usize,
        /// Name of the number.
        field: &'static str,
        /// Value found.
        found: f64,
        /// What would be right.
        expected: &'static str,
    },
    /// A number of the contact model is out of its range.
    #[error("{field} is {found}, must be {expected}")]
    Model {
        /// Name of the number.
        field: &'static str,
        /// Value found.
        found: f64,
        /// What would be right.
        expected: &'static str,
    },
}

impl MaterialTable {
    /// The coefficients of every pair of `materials`, from `pairs` (each pair once, in any order) and `model`.
    ///
    /// # Errors
    /// If a pair is missing or a number is out of its range.
    pub fn new(
        materials: &[Material],
        pairs: &[PairProperties],
        model: ContactModel,
    ) -> Result<Self, MaterialError> {
        let n = materials.len();
        if n == 0 || n > 1 << 16 {
            return Err(MaterialError::Count(n));
        }
        let positive = |x: f64| x.is_finite() && x > 0.0;
        for (material, m) in materials.iter().enumerate() {
            let check = |ok: bool, field, found, expected| {
                if ok { Ok(()) } else { Err(MaterialError::Material { material, field, found, expected }) }
            };
            check(positive(m.density), "density", m.density, "positive [kg/m3]")?;
            check(positive(m.youngs_modulus), "Young's modulus", m.youngs_modulus, "positive [Pa]")?;
            let nu = m.poisson_ratio;
            check(nu > -1.0 && nu <= 0.5, "Poisson's ratio", nu, "above -1 and at most 0.5")?;
        }
        let model_error = |field, found, expected| Err(MaterialError::Model { field, found, expected });
        if let Damping::ConstantCoefficient { impact_speed } = model.damping
            && !positive(impact_speed)
        {
            return model_error("impact speed", impact_speed, "positive [m/s]");
        }
        if !(model.tangential_rate.is_finite() && model.tangential_rate >= 0.0) {
            return model_error("tangential rate", model.tangential_rate, "zero or positive [1/s]");
        }

        let mut properties = Vec::with_capacity(n * n);
        let mut coefficients = Vec::with_capacity(n * n);
        for first in 0..n {
            for second in 0..n {
                let wanted = |p: &&PairProperties| {
                    let (a, b) = (usize::from(p.materials.0), usize::from(p.materials.1));
                    (a, b) == (first, second) || (b, a) == (first, second)
                };
                let pair = *pairs.iter().find(wanted).ok_or(MaterialError::MissingPair(first, second))?;
                let check = |ok: bool, field, found, expected| {
                    if ok {
                        Ok(())
                    } else {
                        Err(MaterialError::Pair { first, second, field, found, expected })
                    }
                };
                let (e, mu) = (pair.restitution, pair.friction);
                check(e > 0.0 && e <= 1.0, "restitution", e, "above 0 and at most 1")?;
                check(mu.is_finite() && mu >= 0.0, "friction", mu, "zero or positive")?;
                properties.push(PairProperties { materials: (first as u16, second as u16), ..pair });
                coefficients.push(coefficients_of(&materials[first], &materials[second], &pair, &model));
            }
        }
        Ok(Self { materials: materials.to_vec(), properties, coefficients, model })
    }

    /// Number of materials.
    pub fn count(&self) -> usize {
        self.materials.len()
    }

    /// The materials.
    pub fn materials(&self) -> &[Material] {
        &self.materials
    }

    /// The contact model.
    pub fn model(&self) -> ContactModel {
        self.model
    }

    /// Restitution and friction as they were asked for.
    ///
    /// # Panics
    /// If there is no such material.
    pub fn properties(&self, first: u16, second: u16) -> PairProperties {
        self.properties[self.row(first, second)]
    }

    /// Effective modulus E* [Pa] of two materials.
    ///
    /// # Panics
    /// If there is no such material.
    pub fn effective_modulus(&self, first: u16, second: u16) -> f64 {
        0.75 * self.coefficients[self.row(first, second)].stiffness
    }

    /// Restitution that two spheres (or sphere and wall) of these materials show at normal speed `speed` [m/s].
    ///
    /// # Panics
    /// If there is no such material.
    pub fn expected_restitution(&self, first: u16, second: u16, speed: f64) -> f64 {
        let asked = self.properties(first, second).restitution;
        match self.model.damping {
            Damping::ConstantRestitution => asked,
            Damping::ConstantCoefficient { impact_speed } => {
                // c is constant, so chat falls with the fifth root of speed.
                let chat = restitution::constant_of_restitution(asked, self.model.clip);
                let ratio = crate::elementary::fifth_root(impact_speed / speed);
                restitution::restitution_of_constant(chat * ratio, self.model.clip)
            }
        }
    }

    /// Largest elastic force [N] of a contact that overlaps by `overlap_limit` (a fraction of the smaller diameter)
    /// between particles of radius up to `max_radius` [m], or of such a particle with a wall: the force that the
    /// overlap guard allows.
    pub fn guard_force(&self, overlap_limit: f64, max_radius: f64) -> f64 {
        let stiffness = self.coefficients.iter().fold(0.0, |s: f64, c| s.max(c.stiffness));
        let overlap = overlap_limit * 2.0 * max_radius;
        // A wall has the larger effective radius: that of the sphere.
        stiffness * f64::sqrt(max_radius * overlap) * overlap
    }

    /// Largest friction coefficient of any pair.
    pub fn max_friction(&self) -> f64 {
        self.coefficients.iter().fold(0.0, |mu: f64, c| mu.max(c.friction))
    }

    pub(crate) fn row(&self, first: u16, second: u16) -> usize {
        usize::from(first) * self.materials.len() + usize::from(second)
    }
}

fn coefficients_of(a: &Material, b: &Material, pair: &PairProperties, model: &ContactModel) -> Coefficients {
    let compliance = |m: &Material| (1.0 - m.poisson_ratio * m.poisson_ratio) / m.youngs_modulus;
    let stiffness = 4.0 / 3.0 / (compliance(a) + compliance(b));
    let damping = match model.damping {
        _ if pair.restitution == 1.0 => 0.0,
        Damping::ConstantRestitution => {
            f64::sqrt(5.0) * restitution::ratio_of_restitution(pair.restitution, model.clip)
        }
        Damping::ConstantCoefficient { impact_speed } => {
            let chat = restitution::constant_of_restitution(pair.restitution, model.clip);
            let square = chat * chat;
            square * square * chat * impact_speed * (stiffness * stiffness)
        }
    };
    Coefficients { stiffness, damping, friction: pair.friction }
}
