# SPDX-License-Identifier: BSD-3-Clause
# Noise needs logarithms.
target_link_libraries(tutti_sim PUBLIC m)
