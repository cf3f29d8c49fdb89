//! Methods that only pass on what they get, to what is in a field. Each is documented as that of the same name there.

/// Setters.
macro_rules! setters {
    ($inner:ident, $of:literal: $($name:ident($value:ident: $type:ty) $($more:literal)?),+ $(,)?) => {$(
        #[doc = concat!("As [`", $of, "::", stringify!($name), "`]", $($more,)? ".")]
        pub fn $name(mut self, $value: $type) -> Self {
            self.$inner = self.$inner.$name($value);
            self
        }
    )+};
}

/// Methods that return what is known.
#[cfg(feature = "blocking")]
macro_rules! getters {
    ($inner:ident, $of:literal: $($name:ident($($value:ident: $type:ty)?) -> $result:ty),+ $(,)?) => {$(
        #[doc = concat!("As [`", $of, "::", stringify!($name), "`].")]
        #[must_use]
        pub fn $name(&self, $($value: $type)?) -> $result {
            self.$inner.$name($($value)?)
        }
    )+};
}

/// Methods that wait on the thread of the caller.
#[cfg(feature = "blocking")]
macro_rules! calls {
    ($inner:ident, $of:literal: $($name:ident($($value:ident: $type:ty)?) -> $result:ty),+ $(,)?) => {$(
        #[doc = concat!("As [`", $of, "::", stringify!($name), "`].\n\n# Errors\n\nAs there.")]
        pub fn $name(&self, $($value: $type)?) -> $result {
            self.background.run(self.$inner.$name($($value)?))
        }
    )+};
}

pub(crate) use setters;
#[cfg(feature = "blocking")]
pub(crate) use {calls, getters};
