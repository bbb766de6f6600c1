# SPDX-License-Identifier: Apache-2.0
# What a wheel holds: drivers, headers and the CMake package for vendors.
